#include "proto/channel_client.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "proto/valid_utf8.h"

namespace lastflop {
namespace {

constexpr int kMaxMessageBytes = 256 << 20;

// The host part of HOST:PORT, without brackets; empty when there is no port.
absl::string_view HostOf(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) {
    return "";
  }
  absl::string_view host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

absl::Status CheckAddress(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) {
    return address.size() > 5 ? absl::OkStatus()
                              : absl::InvalidArgumentError("server address \"unix:\" has no path");
  }
  int port = 0;
  const size_t colon = address.rfind(':');
  if (HostOf(address).empty() || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("server address \"", address, "\": HOST:PORT or unix:PATH is accepted"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path));
  }
  return content.str();
}

}  // namespace

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) {
    return true;
  }
  const absl::string_view host = HostOf(address);
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const ChannelOptions& options) {
  LASTFLOP_RETURN_IF_ERROR(CheckAddress(options.server));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  const bool is_loopback = IsLoopback(options.server);
  if (is_loopback) {
    // http_proxy is meant for the network; a proxy cannot reach this host's loopback anyway.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  }
  // A worker that waits for a coordinator to come back should not wait long.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Two channels of one process must not share a connection: tests restart servers under them.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (options.tls_ca_file.empty()) {
    if (!is_loopback) {
      return absl::InvalidArgumentError(absl::StrCat(
          "server address ", options.server, " is not loopback: it needs TLS, give --tls-ca FILE"));
    }
    return grpc::CreateCustomChannel(options.server, grpc::InsecureChannelCredentials(), arguments);
  }
  grpc::SslCredentialsOptions tls;
  LASTFLOP_ASSIGN_OR_RETURN(tls.pem_root_certs, ReadFile(options.tls_ca_file));
  if (!options.tls_server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls_server_name);
  }
  return grpc::CreateCustomChannel(options.server, grpc::SslCredentials(tls), arguments);
}

absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view doing) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  // The codes of gRPC and Abseil are the same numbers.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(doing, ": ", status.error_message()));
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      ValidUtf8(std::string(status.message())));
}

}  // namespace lastflop
