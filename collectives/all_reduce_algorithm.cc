#include "collectives/all_reduce_algorithm.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

// Of one H200 to the others, and what two_shot takes longer than one_shot at 64 KiB.
constexpr double kPeerBytesPerUs = 340e3;
constexpr double kSecondHopUs = 1.6;
// Two ranks: one_shot takes 26.5 us at 8 MiB and two_shot 26.8; at 16 MiB 52.0 and 50.4.
constexpr int64_t kTwoRanksTwoShotFromBytes = int64_t{12} << 20;
constexpr int64_t kPacketBytes = 16;

}  // namespace

absl::StatusOr<AllReduceAlgorithm> ResolveCpuAllReduce(AllReduceAlgorithm asked, int64_t bytes,
                                                       int64_t ranks) {
  switch (asked) {
    case AllReduceAlgorithm::kAuto:
      return bytes * (ranks - 1) >= kTwoShotFromBytes ? AllReduceAlgorithm::kTwoShot
                                                      : AllReduceAlgorithm::kOneShot;
    case AllReduceAlgorithm::kOneShot:
    case AllReduceAlgorithm::kTwoShot:
    case AllReduceAlgorithm::kRing:
      return asked;
    case AllReduceAlgorithm::kNccl:
      return absl::UnimplementedError(
          "collectives.all_reduce=nccl: the CPU backend has no NCCL; it runs auto, one_shot, "
          "two_shot and ring over shared memory");
  }
  return absl::InvalidArgumentError("unknown all-reduce algorithm");
}

absl::StatusOr<AllReduceAlgorithm> ResolveCudaAllReduce(AllReduceAlgorithm asked, int64_t bytes,
                                                        int64_t ranks, bool reach_each_other) {
  if (asked == AllReduceAlgorithm::kNccl) {
    return asked;
  }
  if (asked == AllReduceAlgorithm::kRing) {
    return absl::UnimplementedError(
        "collectives.all_reduce=ring: the CUDA backend runs auto, nccl, one_shot and two_shot; "
        "NCCL's ring is collectives.nccl.algorithm=ring");
  }
  if (!reach_each_other) {
    if (asked == AllReduceAlgorithm::kAuto) {
      return AllReduceAlgorithm::kNccl;
    }
    return absl::UnimplementedError(absl::StrCat("collectives.all_reduce=", ToWord(asked),
                                                 ": the GPUs do not reach each other's memory"));
  }
  const bool has_packets = bytes > kPacketBytes * (ranks - 1);
  if (asked == AllReduceAlgorithm::kAuto) {
    const auto n = static_cast<double>(ranks);
    const double further_bytes = static_cast<double>(bytes) * (n - 1) * (n - 2) / n;
    const bool is_long = ranks == 2 ? bytes >= kTwoRanksTwoShotFromBytes
                                    : further_bytes > kSecondHopUs * kPeerBytesPerUs;
    return is_long && has_packets ? AllReduceAlgorithm::kTwoShot : AllReduceAlgorithm::kOneShot;
  }
  return asked == AllReduceAlgorithm::kTwoShot && has_packets ? AllReduceAlgorithm::kTwoShot
                                                              : AllReduceAlgorithm::kOneShot;
}

}  // namespace lastflop
