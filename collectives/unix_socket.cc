#include "collectives/unix_socket.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous path of ", path.size(),
                                                   " bytes: a socket address takes 1 to ",
                                                   sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> OpenSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) {
    return absl::ErrnoToStatus(errno, "opening a Unix socket");
  }
  return fd;
}

}  // namespace

int PollMs(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 3'600'000));
}

absl::StatusOr<UniqueFd> ListenAt(const std::string& path) {
  LASTFLOP_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) {
    unlink(path.c_str());
  }
  LASTFLOP_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("listening at ", path));
  }
  return fd;
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path) {
  LASTFLOP_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  LASTFLOP_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    const std::string message = absl::StrCat("connecting to ", path, ": ", std::strerror(error));
    // Not there yet, a dead gang's file, or a full queue: worth another attempt.
    if (error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR) {
      return absl::UnavailableError(message);
    }
    return absl::InternalError(message);
  }
  return fd;
}

absl::Status SendMessage(int socket, const void* bytes, size_t size, int fd) {
  iovec part = {.iov_base = const_cast<void*>(bytes), .iov_len = size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(size)) {
    return absl::UnavailableError(absl::StrCat("sending to a rank: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status ReceiveMessage(int socket, void* bytes, size_t size, Deadline deadline, UniqueFd* fd) {
  pollfd waiting = {.fd = socket, .events = POLLIN, .revents = 0};
  int ready;
  do {
    ready = poll(&waiting, 1, PollMs(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    return absl::DeadlineExceededError("nothing came from a rank in time");
  }
  iovec part = {.iov_base = bytes, .iov_len = size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      int handed = -1;
      std::memcpy(&handed, CMSG_DATA(header), sizeof(int));
      UniqueFd owned(handed);
      if (fd != nullptr) {
        *fd = std::move(owned);
      }
    }
  }
  if (received == 0 || (received < 0 && errno == ECONNRESET)) {
    return absl::UnavailableError("a rank closed its end");
  }
  if (received != static_cast<ssize_t>(size)) {
    return absl::InternalError(
        absl::StrCat("a message of ", received, " bytes from a rank, expected ", size));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> CreateSharedMemory(size_t bytes) {
  UniqueFd fd(memfd_create("lastflop", MFD_CLOEXEC));
  if (!fd.is_open()) {
    return absl::ErrnoToStatus(errno, "creating shared memory");
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("sizing shared memory to ", bytes, " bytes: ", std::strerror(errno)));
  }
  return fd;
}

absl::StatusOr<Mapping> Mapping::Map(int fd, size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mapping ", bytes, " bytes of shared memory: ", std::strerror(errno)));
  }
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(address);
  mapping.bytes_ = bytes;
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

}  // namespace lastflop
