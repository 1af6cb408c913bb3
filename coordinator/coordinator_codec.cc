#include "coordinator/coordinator_codec.h"

#include <string>
#include <variant>

#include "proto/codec.h"
#include "proto/valid_utf8.h"

namespace lastflop {
namespace {

struct Translate {
  v1::CoordinatorMessage operator()(const WelcomeMessage& welcome) const {
    v1::CoordinatorMessage message;
    message.mutable_welcome()->set_worker_id(welcome.worker_id);
    message.mutable_welcome()->set_heartbeat_ms(welcome.heartbeat.count());
    message.mutable_welcome()->set_timeout_ms(welcome.timeout.count());
    return message;
  }
  v1::CoordinatorMessage operator()(const RefusedMessage& refused) const {
    v1::CoordinatorMessage message;
    message.mutable_refused()->set_reason(ValidUtf8(refused.reason));
    return message;
  }
  v1::CoordinatorMessage operator()(const LeaseMessage& lease) const {
    v1::CoordinatorMessage message;
    *message.mutable_lease()->mutable_launch() = ToProto(lease.launch);
    *message.mutable_lease()->mutable_attempt() = ToProto(lease.attempt);
    *message.mutable_lease()->mutable_place() = ToProto(lease.place);
    return message;
  }
  v1::CoordinatorMessage operator()(const CancelMessage& cancel) const {
    v1::CoordinatorMessage message;
    message.mutable_cancel_attempt()->set_attempt_id(cancel.attempt_id);
    message.mutable_cancel_attempt()->set_reason(ValidUtf8(cancel.reason));
    return message;
  }
  v1::CoordinatorMessage operator()(const AckMessage& ack) const {
    v1::CoordinatorMessage message;
    message.mutable_report_ack()->set_attempt_id(ack.attempt_id);
    message.mutable_report_ack()->set_authoritative(ack.authoritative);
    message.mutable_report_ack()->set_message(ValidUtf8(ack.message));
    return message;
  }
  v1::CoordinatorMessage operator()(const ShutdownMessage& shutdown) const {
    v1::CoordinatorMessage message;
    message.mutable_shutdown()->set_reason(ValidUtf8(shutdown.reason));
    return message;
  }
};

}  // namespace

v1::CoordinatorMessage ToProto(const CoordinatorMessage& message) {
  return std::visit(Translate(), message);
}

WorkerHello FromProto(const v1::Hello& message) {
  return {
      .worker_id = message.worker_id(),
      .device = message.device(),
      .device_uuid = message.device_uuid(),
      .host_id = message.host_id(),
      .host_name = message.host_name(),
      .pid = message.pid(),
      .build_hash = message.build_hash(),
      .machine_json = message.machine_json(),
      .held_attempt_ids = {message.held_attempt_ids().begin(), message.held_attempt_ids().end()},
      .allows_commands = message.allows_commands(),
      .plugins = {message.plugins().begin(), message.plugins().end()}};
}

v1::WatchEvent ToProto(const CampaignEvent& event) {
  v1::WatchEvent message;
  message.set_sequence(event.sequence);
  message.set_at_ms(event.at_ms);
  message.set_kind(event.kind);
  message.set_trial_id(event.trial_id);
  message.set_intervention_id(event.intervention_id);
  message.set_state(event.state);
  message.set_message(ValidUtf8(event.message));
  *message.mutable_summary() = ToProto(event.summary);
  message.set_current(ValidUtf8(event.current));
  message.set_best(ValidUtf8(event.best));
  message.set_seconds_left(event.seconds_left);
  return message;
}

v1::LogEntry ToProto(const LogLine& line) {
  v1::LogEntry message;
  message.set_at_ms(line.at_ms);
  message.set_source(line.source);
  message.set_severity(line.severity);
  message.set_line(ValidUtf8(line.line));
  return message;
}

}  // namespace lastflop
