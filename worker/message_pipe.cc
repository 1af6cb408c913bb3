#include "worker/message_pipe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr uint32_t kMostBytes = 1u << 30;

}  // namespace

MessagePipe::MessagePipe(MessagePipe&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

MessagePipe& MessagePipe::operator=(MessagePipe&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

MessagePipe::~MessagePipe() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

absl::Status MessagePipe::Send(absl::string_view message) {
  const auto size = static_cast<uint32_t>(message.size());
  std::string frame(sizeof(size), '\0');
  std::memcpy(frame.data(), &size, sizeof(size));
  frame.append(message.data(), message.size());
  size_t sent = 0;
  while (sent < frame.size()) {
    // No SIGPIPE: a dead child is a finding, not the worker's end.
    const ssize_t n = send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return absl::UnavailableError(absl::StrCat("the other end is gone: ", std::strerror(errno)));
    }
    sent += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status MessagePipe::ReadExactly(char* out, size_t size) {
  size_t got = 0;
  while (got < size) {
    const ssize_t n = recv(fd_, out + got, size - got, 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return absl::UnavailableError("the other end is gone");
    }
    got += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MessagePipe::Receive(std::chrono::milliseconds timeout) {
  pollfd wanted{.fd = fd_, .events = POLLIN, .revents = 0};
  const int ready = poll(&wanted, 1, static_cast<int>(timeout.count()));
  if (ready == 0 || (ready < 0 && errno == EINTR)) {
    return absl::DeadlineExceededError("no message yet");
  }
  uint32_t size = 0;
  LASTFLOP_RETURN_IF_ERROR(ReadExactly(reinterpret_cast<char*>(&size), sizeof(size)));
  if (size > kMostBytes) {
    return absl::InternalError(absl::StrCat("a message of ", size, " bytes is out of step"));
  }
  std::string message(size, '\0');
  LASTFLOP_RETURN_IF_ERROR(ReadExactly(message.data(), size));
  return message;
}

}  // namespace lastflop
