#include "worker/child_service.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collectives/gang.h"
#include "common/campaign_json.h"
#include "common/host.h"
#include "common/parent_process.h"
#include "common/status_macros.h"
#include "lastflop/v1/child.pb.h"
#include "proto/codec.h"
#include "worker/agreement.h"
#include "worker/arm.h"
#include "worker/attempt_runner.h"
#include "worker/gpu_presence.h"
#include "worker/host.h"
#include "worker/host_devices.h"
#include "worker/launch_stop_rule.h"
#include "worker/measuring_hold.h"
#include "worker/message_pipe.h"
#include "worker/plugin_host.h"
#include "worker/plugin_watch.h"

namespace lastflop {
namespace {

constexpr std::chrono::hours kForever{24};
constexpr std::chrono::milliseconds kGangTimeout{60000};
constexpr absl::string_view kWaiting = "waiting for the device";

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

AttemptResult Failed(const AttemptSpec& attempt, const absl::Status& status, int rank) {
  AttemptResult result;
  result.attempt_id = attempt.attempt_id;
  result.trial_id = attempt.trial_id;
  // Before an attempt has begun there is no result that could be wrong.
  const FailureKind kind =
      absl::IsFailedPrecondition(status) ? FailureKind::kInternal : KindOf(status);
  result.failure = Failure{.kind = kind, .message = std::string(status.message()), .rank = rank};
  return result;
}

// What a child keeps between attempts of its launch: the campaign and the backend with its weights.
class Child {
 public:
  explicit Child(MessagePipe pipe) : pipe_(std::move(pipe)) {}

  int Serve() {
    while (true) {
      absl::StatusOr<std::string> message = pipe_.Receive(kForever);
      if (absl::IsDeadlineExceeded(message.status())) {
        continue;
      }
      v1::ChildRequest request;
      if (!message.ok() || !request.ParseFromString(*message)) {
        return 0;  // The worker is gone, and so is the reason to be.
      }
      const absl::Status handled =
          request.has_start() ? Start(request.start()) : Run(request.run());
      if (!handled.ok()) {
        return 0;
      }
    }
  }

 private:
  absl::Status Start(const v1::ChildStart& request) {
    v1::ChildReply reply;
    const absl::Status status = Load(request);
    reply.mutable_ready()->set_error(std::string(status.message()));
    return pipe_.Send(reply.SerializeAsString());
  }

  absl::Status Load(const v1::ChildStart& request) {
    device_ = request.device();
    identity_ = IdentityOf(device_);
    if (absl::StartsWith(device_, "cpu:")) {
      const std::optional<UnusedGpus> unused = FindUnusedGpus();
      unused_gpus_ = unused.has_value() ? unused->Text() : "";
    }
    PluginFiles plugins;
    for (const v1::PluginFile& file : request.plugins()) {
      plugins[file.name()] = {.path = file.path(), .fingerprint = file.fingerprint()};
    }
    LASTFLOP_ASSIGN_OR_RETURN(PluginWatch watch, PluginWatch::Attach(kPluginWatchFd));
    plugins_.emplace(std::move(plugins), std::move(watch));
    LASTFLOP_ASSIGN_OR_RETURN(launch_, FromProto(request.launch()));
    LASTFLOP_ASSIGN_OR_RETURN(campaign_, CampaignFromJson(launch_.campaign_json));
    return absl::OkStatus();
  }

  absl::Status Run(const v1::ChildRun& request) {
    v1::ChildReply reply;
    const absl::StatusOr<AttemptSpec> attempt = FromProto(request.attempt());
    const absl::StatusOr<GangPlace> place = FromProto(request.place());
    if (!attempt.ok() || !place.ok()) {
      AttemptSpec named;
      named.attempt_id = request.attempt().attempt_id();
      named.trial_id = request.attempt().trial_id();
      *reply.mutable_result() =
          ToProto(Failed(named, attempt.ok() ? place.status() : attempt.status(), -1));
    } else {
      const absl::StatusOr<AttemptResult> result = RunHoldingDevice(*attempt, *place);
      if (result.ok()) {
        *reply.mutable_result() = ToProto(*result);
      } else {
        reply.mutable_busy()->set_reason(std::string(result.status().message()));
      }
    }
    return pipe_.Send(reply.SerializeAsString());
  }

  // DeadlineExceeded: other processes measured for too long, and nothing ran.
  absl::StatusOr<AttemptResult> RunHoldingDevice(const AttemptSpec& attempt,
                                                 const GangPlace& place) {
    Progress(kWaiting, 0, 0);
    // A shard's other ranks are modelled: there is nobody to meet.
    absl::StatusOr<std::unique_ptr<Gang>> gang =
        place.shard ? JoinGang("", 0, 1, kGangTimeout)
                    : JoinGang(place.rendezvous, place.rank, place.num_ranks, kGangTimeout);
    if (!gang.ok()) {
      return Failed(attempt, gang.status(), place.rank);
    }
    // Met first: a rank that held its device while another waits for one would have two campaigns
    // block each other. Half of the time that there is remains to measure in.
    const absl::StatusOr<MeasuringHold> hold = HoldToMeasure(
        **gang, {.device = device_,
                 .lock_name = identity_.lock_name,
                 .timeout = attempt.deadline / 2,
                 .on_wait = [this] { Progress(kWaiting, 0, 0, /*is_held_up=*/true); },
                 .say = [this](const std::string& text) { Note("device_held", text); }});
    if (absl::IsDeadlineExceeded(hold.status())) {
      return hold.status();
    }
    if (!hold.ok()) {
      return Failed(attempt, hold.status(), place.rank);
    }
    if (const absl::Status made = MakeBackend(place); !made.ok()) {
      return Failed(attempt, made, place.rank);
    }
    AttemptResult result = RunAttempt(
        *backend_, **gang,
        AttemptInputs{.campaign = campaign_,
                      .launch = launch_,
                      .attempt = attempt,
                      .stop = MakeLaunchStopRule(attempt, campaign_.measure),
                      .progress = [this](absl::string_view stage, int64_t pairs,
                                         double speedup) { Progress(stage, pairs, speedup); },
                      .now_s = NowSeconds});
    result.fidelity = place.shard ? Fidelity::kShard : Fidelity::kFull;
    result.environment["host"] = HostName();
    result.environment["build"] = BuildHash();
    result.environment["device"] = device_;
    if (!unused_gpus_.empty()) {
      result.environment[kUnusedGpus] = unused_gpus_;
    }
    return result;
  }

  // The backend of this child, made anew when its place in a gang has changed.
  absl::Status MakeBackend(const GangPlace& place) {
    if (backend_ != nullptr && place_.rank == place.rank && place_.num_ranks == place.num_ranks &&
        place_.shard == place.shard) {
      return absl::OkStatus();
    }
    backend_.reset();
    BackendOptions options;
    options.model = campaign_.model;
    options.measure = campaign_.measure;
    options.machine = campaign_.machine;
    options.layers_kept = campaign_.layers_kept;
    options.data_seed = launch_.data_seed;
    options.rank = place.shard ? 0 : place.rank;
    options.num_ranks = place.shard ? 1 : place.num_ranks;
    options.shard = place.shard;
    options.plugins = &*plugins_;
    options.gpu_uuid = identity_.gpu_uuid;
    const std::pair<absl::string_view, absl::string_view> device = absl::StrSplit(device_, ':');
    if (!absl::SimpleAtoi(device.second, &options.device_index)) {
      return absl::InternalError(absl::StrCat("device ", device_, " has no index"));
    }
    if (device.first == "cuda") {
      LASTFLOP_ASSIGN_OR_RETURN(backend_, CreateCudaBackend(options));
    } else if (place.shard) {
      return absl::UnimplementedError(
          "fidelity shard: the CPU backend runs every rank and models none");
    } else {
      LASTFLOP_ASSIGN_OR_RETURN(backend_, CreateCpuBackend(options));
    }
    place_ = place;
    return absl::OkStatus();
  }

  void Note(absl::string_view event, const std::string& text) {
    Progress(text, 0, 0, /*is_held_up=*/true);
    v1::ChildReply reply;
    reply.mutable_note()->set_event(std::string(event));
    reply.mutable_note()->set_text(text);
    pipe_.Send(reply.SerializeAsString()).IgnoreError();
  }

  void Progress(absl::string_view stage, int64_t pairs, double speedup, bool is_held_up = false) {
    v1::ChildReply reply;
    reply.mutable_progress()->set_stage(std::string(stage));
    reply.mutable_progress()->set_pairs(pairs);
    reply.mutable_progress()->set_speedup(speedup);
    reply.mutable_progress()->set_is_held_up(is_held_up);
    // Lost progress is no failure; a lost worker ends this process by itself.
    pipe_.Send(reply.SerializeAsString()).IgnoreError();
  }

  MessagePipe pipe_;
  std::string device_;
  DeviceIdentity identity_;  // In this process, whose plan may have set CUDA_VISIBLE_DEVICES.
  std::string unused_gpus_;
  LaunchSpec launch_;
  Campaign campaign_;
  GangPlace place_;
  std::optional<PluginHost> plugins_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace

int RunChild(int parent_pid) {
  if (!DieWithParent(parent_pid, SIGKILL)) {
    return 1;
  }
  prctl(PR_SET_NAME, "lastflop-worker");  // Spawned from /proc/self/exe, it would be "exe".
  // Ctrl-C in a terminal reaches the whole group; the worker decides what happens to its child.
  signal(SIGINT, SIG_IGN);
  return Child(MessagePipe(kChildPipeFd)).Serve();
}

}  // namespace lastflop
