#include "coordinator/server.h"

#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "coordinator/campaign_service.h"
#include "coordinator/worker_service.h"
#include "proto/channel_client.h"

namespace lastflop {
namespace {

constexpr int kMaxMessageBytes = 256 << 20;

absl::StatusOr<std::string> ReadFile(absl::string_view flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": cannot read ", path));
  }
  return content.str();
}

absl::Status CheckExposure(const ServerOptions& options) {
  const bool has_tls = !options.tls_cert_file.empty() && !options.tls_key_file.empty();
  if (options.tls_cert_file.empty() != options.tls_key_file.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  }
  if (!IsLoopback(options.listen) && (!has_tls || options.token.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", options.listen,
                     ": an address that is not loopback needs --tls-cert, --tls-key and "
                     "--token-file"));
  }
  return absl::OkStatus();
}

absl::Status CheckPort(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(absl::string_view(listen).substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", listen,
                     ": HOST:PORT with a port from 0 (any free one) to 65535, or unix:PATH"));
  }
  return absl::OkStatus();
}

// gRPC's own failure to bind comes with lines of its log on stderr, so that a taken port is found
// before it tries. OK also where this cannot tell: gRPC says what is wrong then.
absl::Status CheckPortIsFree(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  const std::string port = listen.substr(colon + 1);
  const std::string host(absl::StripSuffix(absl::StripPrefix(listen.substr(0, colon), "["), "]"));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    return absl::OkStatus();
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  const int probe = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;  // As gRPC: connections of an earlier coordinator that linger do not count.
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool is_taken = bind(probe, found->ai_addr, found->ai_addrlen) != 0 && errno == EADDRINUSE;
  close(probe);
  return is_taken ? absl::FailedPreconditionError(
                        absl::StrCat("cannot listen on ", listen, ": another process does"))
                  : absl::OkStatus();
}

// gRPC removes a socket file that is in its way, also one that somebody listens on.
absl::Status CheckUnixSocket(absl::string_view path) {
  sockaddr_un address{};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("--listen unix:", path, ": a path has 1 to ",
                                                   sizeof(address.sun_path) - 1, " bytes"));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_taken =
      connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(probe);
  return is_taken ? absl::FailedPreconditionError(
                        absl::StrCat("cannot listen on unix:", path, ": another process does"))
                  : absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(
    const ServerOptions& options) {
  if (options.tls_cert_file.empty()) {
    return grpc::InsecureServerCredentials();
  }
  grpc::SslServerCredentialsOptions tls;
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  LASTFLOP_ASSIGN_OR_RETURN(pair.cert_chain, ReadFile("--tls-cert", options.tls_cert_file));
  LASTFLOP_ASSIGN_OR_RETURN(pair.private_key, ReadFile("--tls-key", options.tls_key_file));
  tls.pem_key_cert_pairs.push_back(std::move(pair));
  return grpc::SslServerCredentials(tls);
}

}  // namespace

struct Server::Services {
  WorkerServiceImpl worker;
  CampaignServiceImpl campaign;
};

absl::Status Server::Check(const ServerOptions& options) {
  absl::string_view unix_path = options.listen;
  if (absl::ConsumePrefix(&unix_path, "unix:")) {
    LASTFLOP_RETURN_IF_ERROR(CheckUnixSocket(unix_path));
  } else {
    LASTFLOP_RETURN_IF_ERROR(CheckPort(options.listen));
    LASTFLOP_RETURN_IF_ERROR(CheckPortIsFree(options.listen));
  }
  LASTFLOP_RETURN_IF_ERROR(CheckExposure(options));
  return MakeCredentials(options).status();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      Coordinator& coordinator) {
  LASTFLOP_RETURN_IF_ERROR(Check(options));
  const bool is_unix = absl::StartsWith(options.listen, "unix:");
  LASTFLOP_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ServerCredentials> credentials,
                            MakeCredentials(options));

  auto services = std::unique_ptr<Services>(
      new Services{{coordinator, options.token}, {coordinator, options.token}});
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // Else a second coordinator could listen beside this one and take half of its calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  int port = 0;
  builder.AddListeningPort(options.listen, std::move(credentials), &port);
  builder.RegisterService(&services->worker);
  builder.RegisterService(&services->campaign);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", options.listen, ": is another process listening there?"));
  }
  const std::string address =
      is_unix ? options.listen
              : absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", port);
  return std::unique_ptr<Server>(new Server(std::move(services), std::move(server), address));
}

Server::Server(std::unique_ptr<Services> services, std::unique_ptr<grpc::Server> server,
               std::string address)
    : services_(std::move(services)), server_(std::move(server)), address_(std::move(address)) {}

Server::~Server() { Shutdown(); }

void Server::Shutdown() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_->Wait();
}

}  // namespace lastflop
