#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/cpu/fp8.h"

namespace lastflop {
namespace {

float CacheValue(CacheFormat format, std::span<const std::byte> cache, int64_t index) {
  if (format == CacheFormat::kFp8) {
    return ToFloat(reinterpret_cast<const Fp8*>(cache.data())[index]);
  }
  return ToFloat(reinterpret_cast<const Bf16*>(cache.data())[index]);
}

// One head of one token.
void AttendHead(const AttentionShape& shape, const Bf16* query, const KvCache& cache, int64_t token,
                int64_t head, std::span<float> out) {
  const AttentionWidths widths = WidthsOf(shape);
  const std::span<const std::byte> values =
      shape.kind == AttentionKind::kMla ? cache.keys : cache.values;
  const int64_t sequence = token / shape.query_tokens;
  const int64_t num_visible = shape.context + token % shape.query_tokens + 1;
  const int64_t first = sequence * (shape.context + shape.query_tokens) * widths.cache_stride +
                        head / (shape.num_heads / shape.num_kv_heads) * widths.kv_head_offset;
  std::vector<double> weights(static_cast<size_t>(num_visible));
  double max = -INFINITY;
  for (int64_t s = 0; s < num_visible; ++s) {
    double score = 0;
    for (int64_t d = 0; d < widths.key; ++d) {
      score += static_cast<double>(ToFloat(query[d])) *
               static_cast<double>(
                   CacheValue(shape.cache, cache.keys, first + s * widths.cache_stride + d));
    }
    weights[static_cast<size_t>(s)] = score * shape.softmax_scale;
    max = std::max(max, weights[static_cast<size_t>(s)]);
  }
  double sum = 0;
  for (double& weight : weights) {
    weight = std::exp(weight - max);
    sum += weight;
  }
  for (int64_t v = 0; v < widths.value; ++v) {
    double value = 0;
    for (int64_t s = 0; s < num_visible; ++s) {
      value +=
          weights[static_cast<size_t>(s)] *
          static_cast<double>(CacheValue(shape.cache, values, first + s * widths.cache_stride + v));
    }
    out[static_cast<size_t>(v)] = static_cast<float>(value / sum);
  }
}

}  // namespace

void AttentionReference(const AttentionShape& shape, std::span<const Bf16> query,
                        const KvCache& cache, std::span<const int64_t> tokens, std::span<float> out,
                        std::span<const int64_t> heads) {
  const AttentionWidths widths = WidthsOf(shape);
  const int64_t num_tokens = tokens.empty() ? shape.num_sequences * shape.query_tokens
                                            : static_cast<int64_t>(tokens.size());
  const int64_t num_heads = heads.empty() ? shape.num_heads : static_cast<int64_t>(heads.size());
  for (int64_t i = 0; i < num_tokens; ++i) {
    const int64_t token = tokens.empty() ? i : tokens[static_cast<size_t>(i)];
    for (int64_t j = 0; j < num_heads; ++j) {
      const int64_t head = heads.empty() ? j : heads[static_cast<size_t>(j)];
      const int64_t at = token * widths.query_stride + head * widths.query_offset;
      AttendHead(shape, query.data() + at, cache, token, head,
                 out.subspan(static_cast<size_t>((i * num_heads + j) * widths.value),
                             static_cast<size_t>(widths.value)));
    }
  }
}

}  // namespace lastflop
