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
  explicit CpuCollectiveBencher(std::unique_ptr<CpuCommunicator> ranks)
      : ranks_(std::move(ranks)) {}

  absl::StatusOr<CollectiveSamples> Run(const CollectiveCase& test) override {
    if (test.operation != "all_reduce") {
      return absl::UnimplementedError(
          absl::StrCat(test.operation, ": the CPU backend has all_reduce"));
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
  std::unique_ptr<CpuCommunicator> ranks_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveBencher>> CreateCpuCollectiveBencher(Gang& gang) {
  LASTFLOP_ASSIGN_OR_RETURN(auto ranks, CpuCommunicator::Create(gang, {}));
  return std::make_unique<CpuCollectiveBencher>(std::move(ranks));
}

uint16_t CollectiveValue(int rank, int64_t index) {
  const int64_t step = (index * 7 + rank * 3) % kCollectivePattern;
  return ToBf16(std::ldexp(1.0F + static_cast<float>(step) / 64.0F, -60));
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
