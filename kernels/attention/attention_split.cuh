#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// How the work of one call is cut, for host and device.
//
// A row is one query head of one token. The rows that share a KV head of a sequence are numbered
// token * heads_per_group + head in group and taken row_tile at a time, a tile of rows a block. A
// tile of rows of a KV head is a column; for each column the positions of all sequences, in tiles
// of tile_positions, are one list of units (sequence * tiles + tile), and a block takes a range of
// it. Blocks of the same range are neighbours: tiles of rows find each other's cache reads in L2,
// and KV heads, which lie side by side in the cache, read a page of memory at about the same time.
//
// A block that has all units of a sequence writes `out`. Else each leaves a partial result in a
// slot: slot 2 * block for the segment that begins its range, 2 * block + 1 for a later one, and
// the merge kernel goes over the sequences that are divided.
namespace lastflop::attention {

struct Split {
  int heads_per_group;
  int num_rows;  // Of a KV head of a sequence: heads_per_group * query_tokens.
  int row_tile;
  int row_tiles;
  int num_sequences;
  int num_kv_heads;
  int query_tokens;
  int context;
  int positions;  // context + query_tokens
  int tile_positions;
  int ranges;  // Blocks of a column.
  int key_width;
  int value_width;
  int64_t query_stride;  // Elements between tokens of the query.
  int64_t query_offset;  // Elements between heads of a token of the query.
  int64_t out_stride;    // Elements between tokens of the output.
  float scale_log2;      // softmax_scale / ln 2

  __host__ __device__ int Columns() const { return row_tiles * num_kv_heads; }
  // Tiles of positions that the rows of a row tile see.
  __host__ __device__ int Tiles(int row_tile_index) const {
    const int end = (row_tile_index + 1) * row_tile;
    const int last_row = (end < num_rows ? end : num_rows) - 1;
    return (context + last_row / heads_per_group + tile_positions) / tile_positions;
  }
  // Fewer than 2^31: CheckAttentionCuda() sees to it.
  __host__ __device__ int Units(int row_tile_index) const {
    return num_sequences * Tiles(row_tile_index);
  }
  __host__ __device__ int UnitsOfRange(int row_tile_index) const {
    return (Units(row_tile_index) + ranges - 1) / ranges;
  }
  // fp32 values of a slot: sums of each row, then its maximum and its sum of weights.
  __host__ __device__ int64_t SlotFloats() const {
    return static_cast<int64_t>(row_tile) * (value_width + 2);
  }
  __host__ __device__ int64_t NumSlots() const {
    return ranges > 1 ? int64_t{2} * ranges * Columns() : 0;
  }
};

struct Arguments {
  const __nv_bfloat16* query;
  const char* keys;
  const char* values;
  __nv_bfloat16* out;
  float* partials;
};

#if defined(__CUDACC__)

// A block's walk over its range.
struct Range {
  int row_tile_index;
  int kv_head;
  int tiles;  // Of a sequence.
  int begin;  // Units.
  int end;

  __device__ Range(const Split& split, int block)
      : row_tile_index(block % split.row_tiles),
        kv_head(block / split.row_tiles % split.num_kv_heads),
        tiles(split.Tiles(row_tile_index)) {
    const int units = split.Units(row_tile_index);
    const int per_range = split.UnitsOfRange(row_tile_index);
    begin = min(units, block / split.Columns() * per_range);
    end = min(units, begin + per_range);
  }
};

// A unit's sequence and tile, counted on without divisions.
struct Unit {
  int sequence;
  int tile;

  __device__ Unit(const Range& range)
      : sequence(range.begin / range.tiles), tile(range.begin % range.tiles) {}
  __device__ void Next(int tiles) {
    if (++tile == tiles) {
      tile = 0;
      ++sequence;
    }
  }
};

// One row of a KV head of a sequence: where its query and output are, and how many positions it
// sees.
struct Row {
  bool is_real;
  int64_t query_at;
  int64_t out_at;
  int num_visible;

  __device__ Row(const Split& split, int sequence, int kv_head, int index)
      : is_real(index < split.num_rows) {
    const int row = is_real ? index : split.num_rows - 1;
    const int token_index = row / split.heads_per_group;
    const int head = kv_head * split.heads_per_group + row % split.heads_per_group;
    const int64_t token = static_cast<int64_t>(sequence) * split.query_tokens + token_index;
    query_at = token * split.query_stride + head * split.query_offset;
    out_at = token * split.out_stride + static_cast<int64_t>(head) * split.value_width;
    num_visible = split.context + token_index + 1;
  }
};

// Where a segment of a block's range leaves its result; null means `out`.
__device__ inline float* SlotOf(const Split& split, const Arguments& arguments, bool begins_range,
                                bool is_whole_sequence) {
  if (is_whole_sequence) {
    return nullptr;
  }
  const int64_t slot = 2 * static_cast<int64_t>(blockIdx.x) + (begins_range ? 0 : 1);
  return arguments.partials + slot * split.SlotFloats();
}

#endif  // __CUDACC__

}  // namespace lastflop::attention
