#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// The few system calls by which a gang meets: Unix sockets that keep message boundaries, shared
// memory without a name, and its descriptor handed over a socket. Only collectives/ sees this.
namespace lastflop {

// Owns a file descriptor. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

using Deadline = std::chrono::steady_clock::time_point;

// Milliseconds to `deadline` for poll(): at least 0, rounded up.
int PollMs(Deadline deadline);

// Listens at `path`. A socket file that a dead gang left there is replaced. InvalidArgument for a
// path too long for an address.
absl::StatusOr<UniqueFd> ListenAt(const std::string& path);

// One attempt. Unavailable when nobody listens there yet.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& path);

// One message, with `fd` along when it is not negative. Unavailable when the peer is gone.
absl::Status SendMessage(int socket, const void* bytes, size_t size, int fd = -1);

// The next message, exactly `size` bytes; `fd` takes the descriptor that came along. Unavailable
// when the peer closed, DeadlineExceeded when nothing came in time.
absl::Status ReceiveMessage(int socket, void* bytes, size_t size, Deadline deadline,
                            UniqueFd* fd = nullptr);

// Zeroed memory of `bytes` that another process can map through its descriptor.
absl::StatusOr<UniqueFd> CreateSharedMemory(size_t bytes);

// A mapping of a descriptor's first `bytes`. Move-only.
class Mapping {
 public:
  static absl::StatusOr<Mapping> Map(int fd, size_t bytes);
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lastflop
