#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/all_reduce_algorithm.h"
#include "collectives/cpu_collectives.h"
#include "collectives/reduce_bf16.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

// Slice `index` of `count` elements over `num_slices`: multiples of a cache line but for the last,
// so that no two ranks write one line.
struct Slice {
  int64_t begin = 0;
  int64_t size = 0;
};
Slice SliceOf(int64_t count, int index, int num_slices) {
  constexpr int64_t kLineElements = 32;
  const int64_t lines = (count + kLineElements - 1) / kLineElements;
  const int64_t begin = std::min(count, lines * index / num_slices * kLineElements);
  const int64_t end = std::min(count, lines * (index + 1) / num_slices * kLineElements);
  return {.begin = begin, .size = end - begin};
}

}  // namespace

absl::StatusOr<CollectiveTiming> CpuCommunicator::AllReduce(std::span<uint16_t> data,
                                                            AllReduceAlgorithm algorithm,
                                                            ActivationFormat payload) {
  LASTFLOP_RETURN_IF_ERROR(CheckUsable());
  if (payload != ActivationFormat::kBf16) {
    return absl::UnimplementedError(absl::StrCat("collectives.payload=", ToWord(payload),
                                                 ": the CPU backend's all-reduce sends bf16 only"));
  }
  const auto count = static_cast<int64_t>(data.size());
  CollectiveTiming timing;
  LASTFLOP_ASSIGN_OR_RETURN(timing.ran, ResolveCpuAllReduce(algorithm, count * 2, num_ranks()));
  if (num_ranks() == 1) {
    return timing;
  }
  const auto start = Clock::now();
  const Arrival arrival = {
      .count = count, .detail = static_cast<int64_t>(timing.ran), .call = Call::kAllReduce};
  int64_t begin = 0;
  do {
    const int64_t size = std::min(kSegmentElements, count - begin);
    const auto segment = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
    double* const wait_us = begin == 0 ? &timing.wait_us : nullptr;
    if (timing.ran == AllReduceAlgorithm::kOneShot) {
      LASTFLOP_RETURN_IF_ERROR(OneShot(segment, arrival, wait_us));
    } else if (timing.ran == AllReduceAlgorithm::kTwoShot) {
      LASTFLOP_RETURN_IF_ERROR(TwoShot(segment, arrival, wait_us));
    } else {
      LASTFLOP_RETURN_IF_ERROR(Ring(segment, arrival, wait_us));
    }
    begin += size;
  } while (begin < count);
  timing.transfer_us = MicrosSince(start) - timing.wait_us;
  return timing;
}

// Every rank shows its data and sums all of them for itself: one meeting.
absl::Status CpuCommunicator::OneShot(std::span<uint16_t> data, const Arrival& arrival,
                                      double* wait_us) {
  const size_t offset = layout_.staging[NextParity()];
  uint16_t* const mine = Part<uint16_t>(self_, offset);
  const auto count = static_cast<int64_t>(data.size());
  ForParts(count, [&](int64_t begin, int64_t end) {
    std::copy(data.data() + begin, data.data() + end, mine + begin);
  });
  LASTFLOP_RETURN_IF_ERROR(Meet(arrival, wait_us));
  ForParts(count, [&](int64_t begin, int64_t end) {
    std::array<const uint16_t*, kMaxGroupRanks> rows;
    for (int r = 0; r < num_ranks(); ++r) {
      rows[static_cast<size_t>(r)] = Part<uint16_t>(r, offset) + begin;
    }
    SumBf16Rows({rows.data(), static_cast<size_t>(num_ranks())}, end - begin, data.data() + begin);
  });
  return absl::OkStatus();
}

// Every rank shows its data, sums its slice of all of them in its own staging, and takes the other
// slices from the ranks that summed them: two meetings, and a sum divided over the ranks.
absl::Status CpuCommunicator::TwoShot(std::span<uint16_t> data, const Arrival& arrival,
                                      double* wait_us) {
  const size_t offset = layout_.staging[NextParity()];
  uint16_t* const mine = Part<uint16_t>(self_, offset);
  const auto count = static_cast<int64_t>(data.size());
  ForParts(count, [&](int64_t begin, int64_t end) {
    std::copy(data.data() + begin, data.data() + end, mine + begin);
  });
  LASTFLOP_RETURN_IF_ERROR(Meet(arrival, wait_us));
  const Slice own = SliceOf(count, self_, num_ranks());
  ForParts(own.size, [&](int64_t begin, int64_t end) {
    std::array<const uint16_t*, kMaxGroupRanks> rows;
    for (int r = 0; r < num_ranks(); ++r) {
      rows[static_cast<size_t>(r)] = Part<uint16_t>(r, offset) + own.begin + begin;
    }
    SumBf16Rows({rows.data(), static_cast<size_t>(num_ranks())}, end - begin,
                mine + own.begin + begin);
  });
  HeadOf(self_).reduced.store(num_meetings_, std::memory_order_release);
  for (int step = 0; step < num_ranks(); ++step) {
    const int r = (self_ + step) % num_ranks();  // Not all at the same rank at once.
    LASTFLOP_RETURN_IF_ERROR(WaitFor("all_reduce", r, HeadOf(r).reduced, num_meetings_));
    const Slice slice = SliceOf(count, r, num_ranks());
    const uint16_t* const from = Part<uint16_t>(r, offset) + slice.begin;
    ForParts(slice.size, [&](int64_t begin, int64_t end) {
      std::copy(from + begin, from + end, data.data() + slice.begin + begin);
    });
  }
  return absl::OkStatus();
}

// Reduce-scatter and all-gather around the ring: in each step a rank reads only from the rank
// before it. Partial sums travel as fp32, so that every element is rounded once. With n ranks,
// chunk c starts at rank c and its sum is complete at rank c - 1 (mod n).
absl::Status CpuCommunicator::Ring(std::span<uint16_t> data, const Arrival& arrival,
                                   double* wait_us) {
  LASTFLOP_RETURN_IF_ERROR(Meet(arrival, wait_us));
  const int n = num_ranks();
  const int before = (self_ + n - 1) % n;
  const size_t finals = layout_.staging[num_meetings_ % 2];
  const auto count = static_cast<int64_t>(data.size());
  const uint64_t first_step = num_meetings_ * 2 * static_cast<uint64_t>(n);
  float* const partial = Part<float>(self_, layout_.partials);
  uint16_t* const final = Part<uint16_t>(self_, finals);
  const auto publish = [&](int step) {
    HeadOf(self_).ring.store(first_step + static_cast<uint64_t>(step), std::memory_order_release);
  };
  const auto await = [&](int step) {
    return WaitFor("all_reduce", before, HeadOf(before).ring,
                   first_step + static_cast<uint64_t>(step));
  };
  for (int step = 0; step < n; ++step) {
    const Slice chunk = SliceOf(count, (self_ - step + n) % n, n);
    const float* from = nullptr;
    if (step > 0) {
      LASTFLOP_RETURN_IF_ERROR(await(step));
      from = Part<float>(before, layout_.partials) + chunk.begin;
    }
    ForParts(chunk.size, [&](int64_t begin, int64_t end) {
      float* const out = partial + chunk.begin + begin;
      const int64_t size = end - begin;
      AddPartial(from == nullptr ? nullptr : from + begin, data.data() + chunk.begin + begin, size,
                 out);
      if (step == n - 1) {
        RoundToBf16Row(out, size, final + chunk.begin + begin);
        std::copy_n(final + chunk.begin + begin, size, data.data() + chunk.begin + begin);
      }
    });
    publish(step + 1);
  }
  for (int step = n; step < 2 * n - 1; ++step) {
    LASTFLOP_RETURN_IF_ERROR(await(step));
    const Slice chunk = SliceOf(count, (self_ - step + 2 * n) % n, n);
    const uint16_t* const from = Part<uint16_t>(before, finals) + chunk.begin;
    ForParts(chunk.size, [&](int64_t begin, int64_t end) {
      std::copy(from + begin, from + end, final + chunk.begin + begin);
      std::copy(from + begin, from + end, data.data() + chunk.begin + begin);
    });
    publish(step + 1);
  }
  return absl::OkStatus();
}

}  // namespace lastflop
