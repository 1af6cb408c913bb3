#include <algorithm>
#include <map>

#include "absl/strings/str_format.h"
#include "common/random.h"
#include "common/relative_distance.h"
#include "common/status_macros.h"
#include "kernels/cuda/compare_cuda.h"
#include "worker/cpu_check_op.h"
#include "worker/cuda_arm.h"
#include "worker/cuda_run_op.h"

// CudaArm's check: is what is timed right?
namespace lastflop {
namespace {

constexpr uint64_t kSampleStream = 0x63686B;
constexpr uint64_t kTurnStream = 0x7475726E;

}  // namespace

// Ops outside of the layers and those of one dense and one MoE layer, in turn by draw, are compared
// with their references, and others' kernels in every layer; all others run and must leave finite
// numbers.
absl::StatusOr<CheckResult> CudaArm::Check(int64_t draw) {
  if (mirror_ == nullptr) {
    const WeightData data{.seed = options_.data_seed, .zeros = options_.measure.zeros};
    const CudaStepInputs inputs{.model = step_->model,
                                .plan = step_->plan,
                                .point = step_->point,
                                .rank = gang_.rank(),
                                .shard = step_->shard,
                                .layers_kept = 0,
                                .data = data};
    LASTFLOP_ASSIGN_OR_RETURN(mirror_, CudaMirror::Create(inputs, *step_, *parts_.context, gang_,
                                                          *parts_.host_store, *parts_.pool));
  }
  mirror_->Forget();
  LASTFLOP_RETURN_IF_ERROR(SetDraw(draw));
  LASTFLOP_RETURN_IF_ERROR(StartTogether());
  if (step_->is_idle()) {
    return CheckResult{.ok = true};
  }
  std::map<LayerKind, std::vector<int>> layers;
  for (const int layer : step_->step.layers) {
    layers[step_->model.layer_kinds[static_cast<size_t>(layer)]].push_back(layer);
  }
  const uint64_t turn = CounterRandom(static_cast<uint64_t>(draw), kTurnStream, 0);
  std::vector<int> compared = {-1};
  for (const auto& [kind, of_kind] : layers) {
    compared.push_back(of_kind[turn % of_kind.size()]);
  }
  OpCheck worst;
  const Op* worst_op = nullptr;
  for (size_t i = 0; i < step_->ops.size(); ++i) {
    const Op& op = *step_->ops[i].op;
    const bool is_compared =
        std::find(compared.begin(), compared.end(), op.layer) != compared.end();
    if (!is_compared) {
      mirror_->Forget();
    }
    if (!is_compared && step_->ops[i].plugin == nullptr) {
      LASTFLOP_RETURN_IF_ERROR(RunCudaOp(*step_, step_->ops[i], *parts_.context));
      continue;
    }
    // Seeds of one layer's fused op choose it for a full comparison (CpuOpChecker).
    // Of a plugin the other layers' are looked at for what they left unwritten.
    const auto in_turn =
        static_cast<uint64_t>(std::max(0, step_->ops[i].moe_index)) + (is_compared ? 0 : 1);
    const auto num_layers = static_cast<uint64_t>(std::max(1, step_->num_moe_layers()));
    const uint64_t random = CounterRandom(static_cast<uint64_t>(draw), kSampleStream, i / 64);
    LASTFLOP_ASSIGN_OR_RETURN(const OpCheck check,
                              mirror_->Check(i, SeedOfTurn(random, num_layers, in_turn)));
    if (worst.ok() && (worst_op == nullptr || check.share() > worst.share())) {
      worst = check;
      worst_op = &op;
    }
  }
  CheckResult result{.ok = worst.ok(), .max_error = worst.error, .tolerance = worst.tolerance};
  if (worst_op != nullptr && !worst.ok()) {
    result.detail = absl::StrFormat(
        "%s in layer %d disagrees with its reference%s: error %.3g, tolerance %.3g", worst_op->name,
        worst_op->layer, worst.what.empty() ? "" : " (" + worst.what + ")", worst.error,
        worst.tolerance);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> eager, Output());
  LASTFLOP_RETURN_IF_ERROR(CheckReplay(eager, result));
  if (UsesPeerMemory(*step_)) {
    LASTFLOP_RETURN_IF_ERROR(parts_.context->peers->Check());
  }
  return result;
}

// The step as it is timed, on poisoned activations, must end where the checked ops did.
absl::Status CudaArm::CheckReplay(const std::vector<float>& eager, CheckResult& result) {
  LASTFLOP_RETURN_IF_ERROR(CaptureOnce());
  for (const auto& [tensor, buffer] : step_->tensors) {
    // Of a shard under data attention the draw has made the experts' input too.
    const bool is_drawn =
        tensor == step_->step.input || (tensor == Tensor::kExpertInput && step_->shard);
    if (!is_drawn) {
      LASTFLOP_RETURN_IF_ERROR(
          LaunchPoison(buffer->data(), static_cast<int64_t>(buffer->bytes()), stream().get()));
    }
  }
  LASTFLOP_RETURN_IF_ERROR(EnqueueStep());
  LASTFLOP_RETURN_IF_ERROR(Wait());
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> timed, Output());
  const double error = RelativeDistance(timed, eager);
  // Sums in another order (collectives, split products) drift apart over the layers.
  constexpr double kReplayTolerance = 0.05;
  if (result.ok && !(error <= kReplayTolerance)) {
    result.ok = false;
    result.max_error = error;
    result.tolerance = kReplayTolerance;
    result.detail = absl::StrFormat(
        "the step as it is timed ends %.3g away from its ops run one by one, tolerance %.3g "
        "(not a number: something was not written)",
        error, kReplayTolerance);
  }
  return absl::OkStatus();
}

}  // namespace lastflop
