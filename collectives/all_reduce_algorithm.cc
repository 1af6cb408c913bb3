#include "collectives/all_reduce_algorithm.h"

#include "absl/status/status.h"

namespace lastflop {

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

}  // namespace lastflop
