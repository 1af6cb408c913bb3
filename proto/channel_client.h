#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// How a worker or a command reaches the coordinator.
namespace lastflop {

struct ChannelOptions {
  // "unix:PATH" or "HOST:PORT" (also "[::1]:PORT").
  std::string server;
  // PEM file of the authority that signed the coordinator's certificate. Required unless `server`
  // is a Unix socket or loopback.
  std::string tls_ca_file;
  // Name in the certificate, when it is not HOST.
  std::string tls_server_name;
};

// True for Unix sockets, 127.0.0.0/8, [::1] and localhost.
bool IsLoopback(absl::string_view address);

// A channel that does not connect before its first call. Proxies from the environment are ignored
// for loopback and Unix sockets. InvalidArgument: a malformed address, or one that is not loopback
// without a CA file.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const ChannelOptions& options);

// A gRPC error as a Status of the same code, its message prefixed with what was being done.
absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view doing);

// The inverse, for handlers.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace lastflop
