#pragma once

#include <chrono>
#include <string>
#include <variant>

#include "common/attempt.h"
#include "coordinator/worker_table.h"

// What the coordinator tells workers: the domain's form of lastflop.v1.CoordinatorMessage.
namespace lastflop {

struct WelcomeMessage {
  std::string worker_id;
  std::chrono::milliseconds heartbeat{0};
  std::chrono::milliseconds timeout{0};
};

// The stream ends after it.
struct RefusedMessage {
  std::string reason;
};

struct LeaseMessage {
  LaunchSpec launch;
  AttemptSpec attempt;
  GangPlace place;
};

struct CancelMessage {
  std::string attempt_id;
  std::string reason;
};

struct AckMessage {
  std::string attempt_id;
  bool authoritative = false;
  std::string message;
};

struct ShutdownMessage {
  std::string reason;
};

using CoordinatorMessage = std::variant<WelcomeMessage, RefusedMessage, LeaseMessage, CancelMessage,
                                        AckMessage, ShutdownMessage>;

struct Outgoing {
  SessionId session = 0;
  CoordinatorMessage message;
};

}  // namespace lastflop
