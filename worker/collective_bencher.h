#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/gang.h"
#include "common/words.h"

namespace lastflop {

// One measurement of `lastflop collectives bench`.
struct CollectiveCase {
  // all_reduce; all_reduce_norm: with residual and RMSNorm in one kernel; all_reduce_then_norm: the
  // same in two. all_to_all_dispatch and all_to_all_combine: of tokens whose experts are spread
  // over all ranks, so that every row goes to every rank.
  std::string operation = "all_reduce";
  AllReduceAlgorithm asked = AllReduceAlgorithm::kAuto;
  AllToAllAlgorithm exchange = AllToAllAlgorithm::kP2p;  // What all-to-alls run as.
  int64_t bytes = 0;  // bf16 values of a rank; of a norm and of tokens in rows of 7168.
  bool is_dependent =
      true;             // Each call works on what the one before it left; else on its own data.
  int num_calls = 50;   // In one chain.
  int num_samples = 1;  // Chains.
};

inline constexpr int64_t kBenchHiddenSize = 7168;
inline constexpr int64_t kBenchTopK = 8;
inline constexpr int64_t kBenchExperts = 384;

inline bool IsAllToAll(const CollectiveCase& test) {
  return test.operation == "all_to_all_dispatch" || test.operation == "all_to_all_combine";
}

// What this rank saw of it.
struct CollectiveSamples {
  AllReduceAlgorithm ran = AllReduceAlgorithm::kAuto;  // Of all-reduces.
  std::vector<double> us;                              // Per call, a chain each.
  std::optional<double> wait_us;  // Per call: waiting for late ranks. Unset: nobody stamps it.
  bool is_correct = false;        // Every value that the last chain left.
};

// Runs collectives on one rank of a gang. Calls are collective. Not thread-safe.
class CollectiveBencher {
 public:
  virtual ~CollectiveBencher() = default;
  // Unimplemented, on every rank, for what this backend has not.
  virtual absl::StatusOr<CollectiveSamples> Run(const CollectiveCase& test) = 0;
  // Device, versions: what a result must say of where it ran.
  virtual std::map<std::string, std::string> Environment() = 0;
};

// `gang` outlives the bencher.
absl::StatusOr<std::unique_ptr<CollectiveBencher>> CreateCpuCollectiveBencher(Gang& gang);
// Unimplemented in a build without CUDA.
absl::StatusOr<std::unique_ptr<CollectiveBencher>> CreateCudaCollectiveBencher(Gang& gang,
                                                                               int device_index);

// The values of a chain: rank's value at `index`, and what `num_reductions` all-reduces in place
// over all ranks make of all of them. Small powers of two, so that no chain overflows; they repeat
// every kCollectivePattern values, which is prime.
inline constexpr int64_t kCollectivePattern = 61;
uint16_t CollectiveValue(int rank, int64_t index);
std::vector<uint16_t> ReducedPattern(int num_ranks, int num_reductions);
// Of slot k of token `token`: an expert of rank k mod num_ranks, which divides kBenchExperts.
int32_t BenchExpertOf(int num_ranks, int64_t token, int64_t k);
// A value of a row of `rank`'s tokens: small whole numbers, whose sums over a chain are exact.
uint16_t BenchRowValue(int rank, int64_t index);
uint16_t BenchRowValue(int rank, int64_t index, int64_t added);  // The same plus `added`.
// Whether data[i] is pattern[i % kCollectivePattern] for all i, within `tolerance` of it.
bool MatchesPattern(const std::vector<uint16_t>& data, const std::vector<uint16_t>& pattern,
                    double tolerance);

}  // namespace lastflop
