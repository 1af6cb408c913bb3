#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lastflop {

// Length-prefixed messages on one end of a socketpair between a worker and its child. Owns the
// descriptor. One reader and one writer thread at a time.
class MessagePipe {
 public:
  explicit MessagePipe(int fd) : fd_(fd) {}
  MessagePipe(MessagePipe&& other) noexcept;
  MessagePipe& operator=(MessagePipe&& other) noexcept;
  MessagePipe(const MessagePipe&) = delete;
  MessagePipe& operator=(const MessagePipe&) = delete;
  ~MessagePipe();

  // Unavailable when the other end is gone.
  absl::Status Send(absl::string_view message);

  // Blocks for the next message. Unavailable when the other end is gone; DeadlineExceeded when
  // nothing came within `timeout`: then the message is still to come.
  absl::StatusOr<std::string> Receive(std::chrono::milliseconds timeout);

 private:
  absl::Status ReadExactly(char* out, size_t size);

  int fd_ = -1;
};

}  // namespace lastflop
