#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"

namespace grpc {
class Server;
}

namespace lastflop {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";  // "HOST:PORT" (0 picks a free port) or "unix:PATH".
  std::string tls_cert_file;           // PEM.
  std::string tls_key_file;            // PEM.
  std::string token;                   // What workers and commands must show; "" lets all in.
};

// The services on one address, with server reflection and the health service.
class Server {
 public:
  // Whether Start() could listen, before there is a coordinator: what it refuses of an address.
  static absl::Status Check(const ServerOptions& options);

  // InvalidArgument: a malformed address, unreadable TLS files, or an address that is not loopback
  // without TLS and a token. FailedPrecondition: somebody listens there. `coordinator` outlives it.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       Coordinator& coordinator);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where it listens, with the real port.
  const std::string& address() const { return address_; }

  // Ends calls that do not end by themselves within a second.
  void Shutdown();

 private:
  struct Services;
  Server(std::unique_ptr<Services> services, std::unique_ptr<grpc::Server> server,
         std::string address);

  std::unique_ptr<Services> services_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace lastflop
