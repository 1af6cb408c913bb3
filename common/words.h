#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

// Every enumeration that a user can read or write, with its one word in C++, YAML, proto, SQL and
// reports (DESIGN: "one word per thing").
namespace lastflop {

// The words of an enum, in order of declaration. Specialized for each enum below.
template <typename E>
struct EnumWords;

template <typename E>
constexpr absl::string_view ToWord(E value) {
  for (const auto& [candidate, word] : EnumWords<E>::kWords) {
    if (candidate == value) {
      return word;
    }
  }
  return "unknown";
}

template <typename E>
constexpr std::optional<E> FromWord(absl::string_view word) {
  for (const auto& [candidate, candidate_word] : EnumWords<E>::kWords) {
    if (candidate_word == word) {
      return candidate;
    }
  }
  return std::nullopt;
}

// "bf16, fp8_block, ...": for messages that say what would be accepted.
template <typename E>
std::string AllWords() {
  return absl::StrJoin(EnumWords<E>::kWords, ", ", [](std::string* out, const auto& entry) {
    out->append(entry.second.data(), entry.second.size());
  });
}

#define LASTFLOP_ENUM_WORDS(E, N, ...)                                                        \
  template <>                                                                                 \
  struct EnumWords<E> {                                                                       \
    static constexpr std::array<std::pair<E, absl::string_view>, N> kWords = {{__VA_ARGS__}}; \
  }

// ---- Findings -----------------------------------------------------------------------------------

// How an intervention's figure came to be, or why there is none.
enum class Standing {
  kMeasured,
  kPredicted,
  kPruned,
  kUnsupported,
  kInfeasible,
  kInvalid,
  kFailed,
  kNotRun
};
LASTFLOP_ENUM_WORDS(Standing, 8, {Standing::kMeasured, "measured"},
                    {Standing::kPredicted, "predicted"}, {Standing::kPruned, "pruned"},
                    {Standing::kUnsupported, "unsupported"}, {Standing::kInfeasible, "infeasible"},
                    {Standing::kInvalid, "invalid"}, {Standing::kFailed, "failed"},
                    {Standing::kNotRun, "not_run"});

// What a trial of a campaign with rounds is for.
enum class TrialRole {
  kCompare,     // An intervention, or the baseline itself, against the baseline of its round.
  kConfirm,     // The winner of a round again, on fresh seeds.
  kStack,       // All that were accepted against the campaign's own baseline.
  kLeaveOneOut  // All that were accepted against all but one: what that one still gives.
};
LASTFLOP_ENUM_WORDS(TrialRole, 4, {TrialRole::kCompare, "compare"},
                    {TrialRole::kConfirm, "confirm"}, {TrialRole::kStack, "stack"},
                    {TrialRole::kLeaveOneOut, "leave_one_out"});

enum class Effect { kFaster, kSlower, kSame, kUndecided };
LASTFLOP_ENUM_WORDS(Effect, 4, {Effect::kFaster, "faster"}, {Effect::kSlower, "slower"},
                    {Effect::kSame, "same"}, {Effect::kUndecided, "undecided"});

enum class ClaimVerdict {
  kConfirmed,
  kExceeded,
  kPartial,
  kRefuted,
  kImpossible,
  kUndecided,
  kNone
};
LASTFLOP_ENUM_WORDS(ClaimVerdict, 7, {ClaimVerdict::kConfirmed, "confirmed"},
                    {ClaimVerdict::kExceeded, "exceeded"}, {ClaimVerdict::kPartial, "partial"},
                    {ClaimVerdict::kRefuted, "refuted"}, {ClaimVerdict::kImpossible, "impossible"},
                    {ClaimVerdict::kUndecided, "undecided"}, {ClaimVerdict::kNone, "none"});

enum class Fidelity { kFull, kShard, kPredicted };
LASTFLOP_ENUM_WORDS(Fidelity, 3, {Fidelity::kFull, "full"}, {Fidelity::kShard, "shard"},
                    {Fidelity::kPredicted, "predicted"});

// Why an attempt has no times. The `Failure::kind` of DESIGN section "Errors".
enum class FailureKind {
  kUnsupported,  // The backend cannot honour a field of the plan.
  kInfeasible,   // It does not fit: memory, divisibility.
  kWrongResult,  // The output disagrees with the reference.
  kImpossible,   // Faster than the machine's declared peak.
  kCrashed,      // The child ended on a signal or non-zero exit.
  kTimeout,      // It did not finish in time.
  kOutOfMemory,
  kDeviceFault,  // A sticky device error.
  kRankLost,     // Another rank of the gang ended.
  kInternal
};
LASTFLOP_ENUM_WORDS(FailureKind, 10, {FailureKind::kUnsupported, "unsupported"},
                    {FailureKind::kInfeasible, "infeasible"},
                    {FailureKind::kWrongResult, "wrong_result"},
                    {FailureKind::kImpossible, "impossible"}, {FailureKind::kCrashed, "crashed"},
                    {FailureKind::kTimeout, "timeout"},
                    {FailureKind::kOutOfMemory, "out_of_memory"},
                    {FailureKind::kDeviceFault, "device_fault"},
                    {FailureKind::kRankLost, "rank_lost"}, {FailureKind::kInternal, "internal"});

// ---- Campaign -----------------------------------------------------------------------------------

enum class Phase { kDecode, kPrefill };
LASTFLOP_ENUM_WORDS(Phase, 2, {Phase::kDecode, "decode"}, {Phase::kPrefill, "prefill"});

enum class Distribution { kUniform, kBalanced, kZipf, kAllToOne, kTrace };
LASTFLOP_ENUM_WORDS(Distribution, 5, {Distribution::kUniform, "uniform"},
                    {Distribution::kBalanced, "balanced"}, {Distribution::kZipf, "zipf"},
                    {Distribution::kAllToOne, "all_to_one"}, {Distribution::kTrace, "trace"});

enum class Risk { kLow, kMedium, kHigh };
LASTFLOP_ENUM_WORDS(Risk, 3, {Risk::kLow, "low"}, {Risk::kMedium, "medium"}, {Risk::kHigh, "high"});

enum class Quality { kExact, kLossy };
LASTFLOP_ENUM_WORDS(Quality, 2, {Quality::kExact, "exact"}, {Quality::kLossy, "lossy"});

enum class Switchable { kDeployment, kPerBatch };
LASTFLOP_ENUM_WORDS(Switchable, 2, {Switchable::kDeployment, "deployment"},
                    {Switchable::kPerBatch, "per_batch"});

// ---- Model --------------------------------------------------------------------------------------

// How weights are stored.
enum class WeightFormat {
  kBf16,
  kFp8Block,  // fp8 e4m3, one fp32 scale per block (128x128 unless the model says otherwise).
  kFp8,       // fp8 e4m3, one scale per output channel or tensor.
  kInt4G32,   // Symmetric int4, one bf16 scale per 32 weights along the input dimension.
  kInt4G128,
  kNvfp4,  // fp4 e2m1, one fp8 scale per 16.
  kMxfp4,  // fp4 e2m1, one power-of-two scale per 32.
  kInt4G32Sparse24
};
LASTFLOP_ENUM_WORDS(WeightFormat, 8, {WeightFormat::kBf16, "bf16"},
                    {WeightFormat::kFp8Block, "fp8_block"}, {WeightFormat::kFp8, "fp8"},
                    {WeightFormat::kInt4G32, "int4_g32"}, {WeightFormat::kInt4G128, "int4_g128"},
                    {WeightFormat::kNvfp4, "nvfp4"}, {WeightFormat::kMxfp4, "mxfp4"},
                    {WeightFormat::kInt4G32Sparse24, "int4_g32_24"});

enum class ActivationFormat { kBf16, kFp8, kNvfp4 };
LASTFLOP_ENUM_WORDS(ActivationFormat, 3, {ActivationFormat::kBf16, "bf16"},
                    {ActivationFormat::kFp8, "fp8"}, {ActivationFormat::kNvfp4, "nvfp4"});

enum class AttentionKind { kGqa, kMla };
LASTFLOP_ENUM_WORDS(AttentionKind, 2, {AttentionKind::kGqa, "gqa"}, {AttentionKind::kMla, "mla"});

enum class RouterScoring { kSoftmax, kSigmoid };
LASTFLOP_ENUM_WORDS(RouterScoring, 2, {RouterScoring::kSoftmax, "softmax"},
                    {RouterScoring::kSigmoid, "sigmoid"});

enum class LayerKind { kDense, kMoe };
LASTFLOP_ENUM_WORDS(LayerKind, 2, {LayerKind::kDense, "dense"}, {LayerKind::kMoe, "moe"});

// ---- Plan ---------------------------------------------------------------------------------------

enum class AttentionParallel { kTensor, kData };
LASTFLOP_ENUM_WORDS(AttentionParallel, 2, {AttentionParallel::kTensor, "tensor"},
                    {AttentionParallel::kData, "data"});

enum class Dequant { kFused, kSeparate };
LASTFLOP_ENUM_WORDS(Dequant, 2, {Dequant::kFused, "fused"}, {Dequant::kSeparate, "separate"});

enum class MoeKernel { kReference, kGrouped, kFused, kCutlass, kCublaslt, kPlugin };
LASTFLOP_ENUM_WORDS(MoeKernel, 6, {MoeKernel::kReference, "reference"},
                    {MoeKernel::kGrouped, "grouped"}, {MoeKernel::kFused, "fused"},
                    {MoeKernel::kCutlass, "cutlass"}, {MoeKernel::kCublaslt, "cublaslt"},
                    {MoeKernel::kPlugin, "plugin"});

enum class TileOrder { kRowMajor, kColumnMajor };
LASTFLOP_ENUM_WORDS(TileOrder, 2, {TileOrder::kRowMajor, "row_major"},
                    {TileOrder::kColumnMajor, "column_major"});

enum class CacheHint { kNone, kEvictFirst, kEvictLast };
LASTFLOP_ENUM_WORDS(CacheHint, 3, {CacheHint::kNone, "none"},
                    {CacheHint::kEvictFirst, "evict_first"}, {CacheHint::kEvictLast, "evict_last"});

enum class PinSelect { kPopularity, kRandom };
LASTFLOP_ENUM_WORDS(PinSelect, 2, {PinSelect::kPopularity, "popularity"},
                    {PinSelect::kRandom, "random"});

enum class AllReduceAlgorithm { kAuto, kNccl, kOneShot, kTwoShot, kRing };
LASTFLOP_ENUM_WORDS(AllReduceAlgorithm, 5, {AllReduceAlgorithm::kAuto, "auto"},
                    {AllReduceAlgorithm::kNccl, "nccl"}, {AllReduceAlgorithm::kOneShot, "one_shot"},
                    {AllReduceAlgorithm::kTwoShot, "two_shot"},
                    {AllReduceAlgorithm::kRing, "ring"});

enum class AllToAllAlgorithm { kNccl, kP2p };
LASTFLOP_ENUM_WORDS(AllToAllAlgorithm, 2, {AllToAllAlgorithm::kNccl, "nccl"},
                    {AllToAllAlgorithm::kP2p, "p2p"});

enum class CacheFormat { kBf16, kFp8 };
LASTFLOP_ENUM_WORDS(CacheFormat, 2, {CacheFormat::kBf16, "bf16"}, {CacheFormat::kFp8, "fp8"});

enum class GraphMode { kNone, kPiecewise, kFull };
LASTFLOP_ENUM_WORDS(GraphMode, 3, {GraphMode::kNone, "none"}, {GraphMode::kPiecewise, "piecewise"},
                    {GraphMode::kFull, "full"});

enum class Overlap { kNone, kSingleBatch, kTwoBatch, kPrefillDecode };
LASTFLOP_ENUM_WORDS(Overlap, 4, {Overlap::kNone, "none"}, {Overlap::kSingleBatch, "single_batch"},
                    {Overlap::kTwoBatch, "two_batch"}, {Overlap::kPrefillDecode, "prefill_decode"});

// ---- Running ------------------------------------------------------------------------------------

enum class CampaignState { kRunning, kDone, kCancelled, kOutOfBudget, kBaselineFailed };
LASTFLOP_ENUM_WORDS(CampaignState, 5, {CampaignState::kRunning, "running"},
                    {CampaignState::kDone, "done"}, {CampaignState::kCancelled, "cancelled"},
                    {CampaignState::kOutOfBudget, "out_of_budget"},
                    {CampaignState::kBaselineFailed, "baseline_failed"});

enum class TrialState { kPending, kRunning, kDone, kFailed, kLostOut, kCancelled };
LASTFLOP_ENUM_WORDS(TrialState, 6, {TrialState::kPending, "pending"},
                    {TrialState::kRunning, "running"}, {TrialState::kDone, "done"},
                    {TrialState::kFailed, "failed"}, {TrialState::kLostOut, "lost_out"},
                    {TrialState::kCancelled, "cancelled"});

enum class AttemptState { kLeased, kRunning, kDone, kFailed, kLost, kRefused };
LASTFLOP_ENUM_WORDS(AttemptState, 6, {AttemptState::kLeased, "leased"},
                    {AttemptState::kRunning, "running"}, {AttemptState::kDone, "done"},
                    {AttemptState::kFailed, "failed"}, {AttemptState::kLost, "lost"},
                    {AttemptState::kRefused, "refused"});

enum class WorkerState { kIdle, kBusy, kLost, kQuarantined };
LASTFLOP_ENUM_WORDS(WorkerState, 4, {WorkerState::kIdle, "idle"}, {WorkerState::kBusy, "busy"},
                    {WorkerState::kLost, "lost"}, {WorkerState::kQuarantined, "quarantined"});

// ---- Step ---------------------------------------------------------------------------------------

// What an op's time is booked under in the breakdown.
enum class OpCategory {
  kEmbedding,
  kNorm,
  kDense,      // Projections of attention, dense FFN, shared experts.
  kAttention,  // Cache write and read, softmax.
  kRouter,     // Router GEMM, top-k, permutation.
  kMoe,        // Routed experts: gate_up, activation, down, combine.
  kDequant,    // Separate dequantization and activation quantization.
  kCollective,
  kLmHead,
  kSampling,
  kHost,  // Launch gaps and the host's own time.
  kOther
};
LASTFLOP_ENUM_WORDS(OpCategory, 12, {OpCategory::kEmbedding, "embedding"},
                    {OpCategory::kNorm, "norm"}, {OpCategory::kDense, "dense"},
                    {OpCategory::kAttention, "attention"}, {OpCategory::kRouter, "router"},
                    {OpCategory::kMoe, "moe"}, {OpCategory::kDequant, "dequant"},
                    {OpCategory::kCollective, "collective"}, {OpCategory::kLmHead, "lm_head"},
                    {OpCategory::kSampling, "sampling"}, {OpCategory::kHost, "host"},
                    {OpCategory::kOther, "other"});

}  // namespace lastflop
