#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/cpu_collectives.h"
#include "common/status_macros.h"
#include "worker/collective_bencher.h"

namespace lastflop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostChainBytes = int64_t{256} << 20;  // Of the buffers of independent calls.

float ToFloat(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

// To nearest even; values here are finite.
uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

class CpuCollectiveBencher final : public CollectiveBencher {
 public:
  CpuCollectiveBencher(Gang& gang, std::unique_ptr<CpuCommunicator> ranks)
      : gang_(gang), ranks_(std::move(ranks)) {}

  absl::StatusOr<CollectiveSamples> Run(const CollectiveCase& test) override {
    if (IsAllToAll(test)) {
      return RunAllToAll(test);
    }
    if (test.operation != "all_reduce") {
      return absl::UnimplementedError(
          absl::StrCat(test.operation, ": the CPU backend has all_reduce and all_to_all"));
    }
    const auto elements = static_cast<size_t>(test.bytes / 2);
    const int64_t most = std::max<int64_t>(2, kMostChainBytes / std::max<int64_t>(1, test.bytes));
    const int num_buffers =
        test.is_dependent ? 1 : static_cast<int>(std::min<int64_t>(test.num_calls, most));
    std::vector<uint16_t> initial(elements);
    for (size_t i = 0; i < elements; ++i) {
      initial[i] = CollectiveValue(ranks_->rank(), static_cast<int64_t>(i));
    }
    std::vector<std::vector<uint16_t>> buffers(static_cast<size_t>(num_buffers));
    CollectiveSamples samples;
    double wait_us = 0;
    for (int sample = 0; sample <= test.num_samples; ++sample) {  // The first is not counted.
      std::fill(buffers.begin(), buffers.end(), initial);
      uint16_t together[1] = {0};
      LASTFLOP_RETURN_IF_ERROR(ranks_->AllReduce(together, AllReduceAlgorithm::kOneShot).status());
      const Clock::time_point begin = Clock::now();
      for (int call = 0; call < test.num_calls; ++call) {
        LASTFLOP_ASSIGN_OR_RETURN(
            const CollectiveTiming timing,
            ranks_->AllReduce(buffers[static_cast<size_t>(call % num_buffers)], test.asked));
        samples.ran = timing.ran;
        wait_us += sample > 0 ? timing.wait_us : 0;
      }
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      if (sample > 0) {
        samples.us.push_back(took.count() / test.num_calls);
      }
    }
    samples.wait_us = wait_us / test.num_calls / test.num_samples;
    samples.is_correct = true;
    for (int b = 0; b < num_buffers; ++b) {
      const int reductions = (test.num_calls - b + num_buffers - 1) / num_buffers;
      samples.is_correct =
          samples.is_correct && MatchesPattern(buffers[static_cast<size_t>(b)],
                                               ReducedPattern(ranks_->num_ranks(), reductions), 0);
    }
    return samples;
  }

  std::map<std::string, std::string> Environment() override { return {{"backend", "cpu"}}; }

 private:
  // A combine gives back what a dispatch brought: both run, and one of them is timed. Each rank
  // returns the rows that it received, so that a token comes back once from every rank.
  absl::StatusOr<CollectiveSamples> RunAllToAll(const CollectiveCase& test) {
    const int num_ranks = ranks_->num_ranks();
    const int64_t num_tokens = test.bytes / 2 / kBenchHiddenSize;
    const AllToAllShape shape{.num_tokens = num_tokens,
                              .top_k = kBenchTopK,
                              .hidden_size = kBenchHiddenSize,
                              .num_experts = kBenchExperts / num_ranks * num_ranks,
                              .ranks = num_ranks,
                              .algorithm = test.exchange};
    if (test.is_dependent || shape.algorithm != AllToAllAlgorithm::kP2p) {
      return absl::UnimplementedError(
          absl::StrCat(test.operation, ": the CPU backend runs p2p, in independent chains"));
    }
    CpuCommunicator::Options options;
    options.max_tokens = num_tokens;
    options.hidden_size = kBenchHiddenSize;
    options.top_k = kBenchTopK;
    LASTFLOP_ASSIGN_OR_RETURN(const auto ranks, CpuCommunicator::Create(gang_, options));
    const auto slots = static_cast<size_t>(num_tokens * kBenchTopK);
    const auto elements = static_cast<size_t>(num_tokens * kBenchHiddenSize);
    std::vector<uint16_t> rows(elements);
    for (size_t i = 0; i < elements; ++i) {
      rows[i] = BenchRowValue(ranks->rank(), static_cast<int64_t>(i));
    }
    std::vector<int32_t> ids(slots);
    for (size_t i = 0; i < slots; ++i) {
      ids[i] = BenchExpertOf(num_ranks, static_cast<int64_t>(i) / kBenchTopK,
                             static_cast<int64_t>(i) % kBenchTopK);
    }
    const std::vector<float> weights(slots, 0.125F);
    const auto of_all = static_cast<size_t>(num_ranks);
    std::vector<uint16_t> received(elements * of_all);
    std::vector<int32_t> received_ids(slots * of_all);
    std::vector<float> received_weights(slots * of_all);
    std::vector<uint16_t> out(elements);
    const bool times_combine = test.operation == "all_to_all_combine";
    CollectiveSamples samples;
    double wait_us = 0;
    for (int sample = 0; sample <= test.num_samples; ++sample) {
      double us = 0;
      for (int call = 0; call < test.num_calls; ++call) {
        int64_t num_received = 0;
        LASTFLOP_ASSIGN_OR_RETURN(
            const CollectiveTiming there,
            ranks->Dispatch(shape, {rows, ids, weights}, {received, received_ids, received_weights},
                            &num_received));
        const auto size = static_cast<size_t>(num_received * kBenchHiddenSize);
        LASTFLOP_ASSIGN_OR_RETURN(const CollectiveTiming back,
                                  ranks->Combine(std::span(received).first(size), {}, out));
        const CollectiveTiming& timed = times_combine ? back : there;
        us += timed.wait_us + timed.transfer_us;
        wait_us += sample > 0 ? timed.wait_us : 0;
      }
      if (sample > 0) {  // The first is not counted.
        samples.us.push_back(us / test.num_calls);
      }
    }
    samples.wait_us = wait_us / test.num_calls / test.num_samples;
    samples.is_correct = true;
    // Every token went to as many ranks as it has experts on.
    const auto copies = static_cast<float>(std::min<int64_t>(num_ranks, kBenchTopK));
    for (size_t i = 0; i < elements; ++i) {
      samples.is_correct = samples.is_correct && out[i] == ToBf16(copies * ToFloat(rows[i]));
    }
    return samples;
  }

  Gang& gang_;  // Outlives this.
  std::unique_ptr<CpuCommunicator> ranks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveBencher>> CreateCpuCollectiveBencher(Gang& gang) {
  LASTFLOP_ASSIGN_OR_RETURN(auto ranks, CpuCommunicator::Create(gang, {}));
  return std::make_unique<CpuCollectiveBencher>(gang, std::move(ranks));
}

uint16_t CollectiveValue(int rank, int64_t index) {
  const int64_t step = (index * 7 + rank * 3) % kCollectivePattern;
  return ToBf16(std::ldexp(1.0F + static_cast<float>(step) / 64.0F, -60));
}

int32_t BenchExpertOf(int num_ranks, int64_t token, int64_t k) {
  const int64_t per_rank = kBenchExperts / num_ranks;
  return static_cast<int32_t>(k % num_ranks * per_rank + (token * 13 + k * 5) % per_rank);
}

uint16_t BenchRowValue(int rank, int64_t index) { return BenchRowValue(rank, index, 0); }

uint16_t BenchRowValue(int rank, int64_t index, int64_t added) {
  return ToBf16(static_cast<float>((index * 7 + rank * 11) % kCollectivePattern + added));
}

std::vector<uint16_t> ReducedPattern(int num_ranks, int num_reductions) {
  std::vector<uint16_t> pattern(kCollectivePattern);
  for (int64_t i = 0; i < kCollectivePattern; ++i) {
    float sum = 0;
    for (int rank = 0; rank < num_ranks; ++rank) {
      sum += ToFloat(CollectiveValue(rank, i));
    }
    uint16_t value = ToBf16(sum);
    for (int call = 1; call < num_reductions; ++call) {
      value = ToBf16(static_cast<float>(num_ranks) * ToFloat(value));
    }
    pattern[static_cast<size_t>(i)] = value;
  }
  return pattern;
}

bool MatchesPattern(const std::vector<uint16_t>& data, const std::vector<uint16_t>& pattern,
                    double tolerance) {
  for (size_t i = 0; i < data.size(); ++i) {
    const uint16_t wanted = pattern[i % pattern.size()];
    if (data[i] != wanted && !(std::abs(ToFloat(data[i]) / ToFloat(wanted) - 1.0F) <= tolerance)) {
      return false;
    }
  }
  return true;
}

}  // namespace lastflop
