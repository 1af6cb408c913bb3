#include <limits>

#include "common/status_macros.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/fp8.h"
#include "kernels/rope/rope.h"
#include "worker/cpu_op_checker_inl.h"

namespace lastflop {
namespace {

// A step of e4m3 is an eighth of its binade: two values that round apart differ by at most that.
constexpr double kFp8Step = 0.125;

// Values at [begin, begin + count) of a cache in its own format.
std::vector<float> CacheValues(std::span<const std::byte> cache, CacheFormat format, int64_t begin,
                               int64_t count) {
  std::vector<float> values;
  for (int64_t i = begin; i < begin + count; ++i) {
    values.push_back(format == CacheFormat::kFp8
                         ? ToFloat(reinterpret_cast<const Fp8*>(cache.data())[i])
                         : ToFloat(reinterpret_cast<const Bf16*>(cache.data())[i]));
  }
  return values;
}

// A cache of its own for one sequence.
struct OwnCache {
  explicit OwnCache(const AttentionShape& shape)
      : keys(static_cast<size_t>(CacheElements(shape) * CacheElementBytes(shape.cache))),
        values(shape.kind == AttentionKind::kGqa ? keys.size() : 0) {}
  KvCache view() { return {.keys = keys, .values = values}; }
  std::vector<std::byte> keys;
  std::vector<std::byte> values;
};

std::vector<float> ToFloats(std::span<const Bf16> values) {
  std::vector<float> floats(values.size());
  std::transform(values.begin(), values.end(), floats.begin(), [](Bf16 v) { return ToFloat(v); });
  return floats;
}

}  // namespace

CpuOpChecker::Result CpuOpChecker::operator()(const RopeShape& s) {
  return s.kind == AttentionKind::kGqa ? CheckRopeGqa(s) : CheckRopeMla(s);
}

// Whole sequences, whose caches stay small.
std::vector<int64_t> CpuOpChecker::SampleSequences(const AttentionShape& shape) const {
  const int64_t values = (shape.context + shape.query_tokens) * WidthsOf(shape).cache_stride;
  return SampleIndices(shape.num_sequences,
                       std::clamp<int64_t>(kReferenceFlop / values, 1, kMostRows), seed_);
}

CpuOpChecker::Result CpuOpChecker::CheckRopeGqa(const RopeShape& s) {
  const std::vector<int64_t> sequences = SampleSequences(AttentionOf(s));
  const int64_t row_size = s.query_tokens * (s.num_heads + 2 * s.num_kv_heads) * s.head_dim;
  const auto out = Out<Bf16>(s.num_sequences * row_size);
  std::vector<float> reference = ToFloats(GatherRows(out, sequences, row_size, row_size));
  PoisonNewPositions(AttentionOf(s), sequences);
  LASTFLOP_RETURN_IF_ERROR(Run());
  if (cpu_op_.fetch_cache != nullptr) {
    LASTFLOP_RETURN_IF_ERROR(cpu_op_.fetch_cache(sequences));
  }
  RopeShape sampled = s;
  sampled.num_sequences = static_cast<int64_t>(sequences.size());
  OwnCache cache(AttentionOf(sampled));
  RopeGqaReference(sampled, reference, cache.view());
  OpCheck check = Compare(out, sequences, row_size, {}, reference, WorstTolerance(2, 2));
  check.Add(CompareCache(AttentionOf(s), sequences, cache.view()));
  return check;
}

CpuOpChecker::Result CpuOpChecker::CheckRopeMla(const RopeShape& s) {
  const std::vector<int64_t> sequences = SampleSequences(AttentionOf(s));
  const int64_t query_row =
      s.query_tokens * s.num_heads * (s.qk_nope_head_dim + s.qk_rope_head_dim);
  const int64_t out_row = s.query_tokens * s.num_heads * (s.kv_lora_rank + s.qk_rope_head_dim);
  const auto query =
      GatherRows(In<Bf16>(s.num_sequences * query_row), sequences, query_row, query_row);
  auto& latent_buffer = step_.tensors.at(op_.in2);
  const auto all_latents = latent_buffer.As<Bf16>(latent_buffer.bytes() / sizeof(Bf16));
  const auto latent_row = static_cast<int64_t>(all_latents.size()) / s.num_sequences;
  const auto latents = GatherRows(all_latents, sequences, latent_row, latent_row);
  const auto out = Out<Bf16>(s.num_sequences * out_row);
  // The heads' absorbed parts are there already and stay.
  std::vector<float> reference = ToFloats(GatherRows(out, sequences, out_row, out_row));
  PoisonNewPositions(AttentionOf(s), sequences);
  LASTFLOP_RETURN_IF_ERROR(Run());
  if (cpu_op_.fetch_cache != nullptr) {
    LASTFLOP_RETURN_IF_ERROR(cpu_op_.fetch_cache(sequences));
  }
  RopeShape sampled = s;
  sampled.num_sequences = static_cast<int64_t>(sequences.size());
  OwnCache cache(AttentionOf(sampled));
  RopeMlaReference(sampled, query, latents, reference, cache.view());
  OpCheck check = Compare(out, sequences, out_row, {}, reference, WorstTolerance(2, 2));
  check.Add(CompareCache(AttentionOf(s), sequences, cache.view()));
  return check;
}

void CpuOpChecker::PoisonNewPositions(const AttentionShape& shape,
                                      std::span<const int64_t> sequences) {
  const KvCache cache = cpu_op_.cache->view();
  const int64_t row = WidthsOf(shape).cache_stride * CacheElementBytes(shape.cache);
  for (const int64_t sequence : sequences) {
    const int64_t first = sequence * (shape.context + shape.query_tokens) + shape.context;
    for (const std::span<std::byte> part : {cache.keys, cache.values}) {
      if (!part.empty()) {
        std::memset(part.data() + first * row, 0xFF, static_cast<size_t>(shape.query_tokens * row));
      }
    }
  }
}

OpCheck CpuOpChecker::CompareCache(const AttentionShape& shape, std::span<const int64_t> sequences,
                                   const KvCache& reference) {
  const KvCache cache = cpu_op_.cache->view();
  const int64_t row = WidthsOf(shape).cache_stride;
  const int64_t count = shape.query_tokens * row;
  const auto begin_of = [&](int64_t sequence) {
    return (sequence * (shape.context + shape.query_tokens) + shape.context) * row;
  };
  OpCheck check;
  check.tolerance = shape.cache == CacheFormat::kFp8 ? kFp8Step : WorstTolerance(2, 2);
  const auto add = [&](std::span<const std::byte> mine, std::span<const std::byte> wanted,
                       const char* what) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto out = CacheValues(mine, shape.cache, begin_of(sequences[i]), count);
      const auto in_reference =
          CacheValues(wanted, shape.cache, begin_of(static_cast<int64_t>(i)), count);
      check.Add({.error = RowError(std::span<const float>(out), in_reference, row),
                 .tolerance = check.tolerance,
                 .what = what});
    }
  };
  add(cache.keys, reference.keys, "keys in the cache");
  if (!cache.values.empty()) {
    add(cache.values, reference.values, "values in the cache");
  }
  return check;
}

CpuOpChecker::Result CpuOpChecker::operator()(const AttentionShape& s) {
  const AttentionWidths widths = WidthsOf(s);
  const int64_t tokens = s.num_sequences * s.query_tokens;
  const int64_t positions = s.context + s.query_tokens;
  const int64_t head_flop = positions * (widths.key + widths.value);
  const std::vector<int64_t> rows = SampleIndices(
      tokens, std::clamp<int64_t>(4 * kReferenceFlop / (s.num_heads * head_flop), 1, kMostRows),
      seed_);
  // A long context costs milliseconds a head: each check looks at others.
  const std::vector<int64_t> heads =
      SampleIndices(s.num_heads, std::max<int64_t>(4, 4 * kReferenceFlop / head_flop), seed_);
  const int64_t row_size = s.num_heads * widths.value;
  const auto out = Out<Bf16>(tokens * row_size);
  Poison(out, rows, row_size);
  LASTFLOP_RETURN_IF_ERROR(Run());
  if (cpu_op_.fetch_cache != nullptr) {
    std::vector<int64_t> sequences;
    for (const int64_t row : rows) {
      sequences.push_back(row / s.query_tokens);
    }
    LASTFLOP_RETURN_IF_ERROR(cpu_op_.fetch_cache(sequences));
  }
  std::vector<int64_t> columns;
  for (const int64_t head : heads) {
    for (int64_t i = 0; i < widths.value; ++i) {
      columns.push_back(head * widths.value + i);
    }
  }
  std::vector<float> reference(rows.size() * columns.size());
  AttentionReference(s, In<Bf16>(tokens * widths.query_stride), cpu_op_.cache->view(), rows,
                     reference, heads);
  return Compare(out, rows, row_size, columns, reference, WorstTolerance(2, positions));
}

}  // namespace lastflop
