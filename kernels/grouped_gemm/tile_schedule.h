#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "step/shapes.h"

namespace lastflop {

// Which tile of which expert a task index is. Tiles of one expert follow each other; inside an
// expert the order is TileOrder's (grouped_gemm.h). Sizes come from the pair list, read when the
// kernel runs.
class TileSchedule {
 public:
  struct Tile {
    int64_t expert = 0;
    int32_t row_begin = 0;  // Pairs [row_begin, row_end).
    int32_t row_end = 0;
    int64_t n = 0;  // n-tile: its meaning is the kernel's.
  };

  // `tile_begin` is memory for num_experts + 1 values, which Prepare() fills.
  TileSchedule(std::span<const int32_t> offsets, int64_t m_tile, int64_t num_n, TileOrder order,
               int64_t group_m, std::span<int64_t> tile_begin)
      : offsets_(offsets),
        m_tile_(m_tile),
        num_n_(num_n),
        order_(order),
        group_m_(std::max<int64_t>(1, group_m)),
        tile_begin_(tile_begin) {}

  // Counts the tiles; one thread, before any Find().
  void Prepare() {
    int64_t begin = 0;
    for (size_t expert = 0; expert + 1 < offsets_.size(); ++expert) {
      tile_begin_[expert] = begin;
      begin += NumM(expert) * num_n_;
    }
    tile_begin_.back() = begin;
  }

  int64_t num_tiles() const { return tile_begin_.back(); }

  // The tile of index `task`. `expert` is a cursor, 0 at first: a thread's tasks only grow.
  Tile Find(int64_t task, size_t& expert) const {
    while (task >= tile_begin_[expert + 1]) {
      ++expert;
    }
    const int64_t num_m = NumM(expert);
    const int64_t in_expert = task - tile_begin_[expert];
    const int64_t group = order_ == TileOrder::kColumnMajor ? num_m : group_m_;
    const int64_t first_m = in_expert / (group * num_n_) * group;
    const int64_t group_size = std::min(group, num_m - first_m);
    const int64_t in_group = in_expert - first_m * num_n_;
    const int64_t m = first_m + in_group % group_size;
    const auto row_begin = static_cast<int32_t>(offsets_[expert] + m * m_tile_);
    return {.expert = static_cast<int64_t>(expert),
            .row_begin = row_begin,
            .row_end = std::min(offsets_[expert + 1], static_cast<int32_t>(row_begin + m_tile_)),
            .n = in_group / group_size};
  }

 private:
  int64_t NumM(size_t expert) const {
    return (offsets_[expert + 1] - offsets_[expert] + m_tile_ - 1) / m_tile_;
  }

  std::span<const int32_t> offsets_;
  int64_t m_tile_;
  int64_t num_n_;
  TileOrder order_;
  int64_t group_m_;
  std::span<int64_t> tile_begin_;
};

}  // namespace lastflop
