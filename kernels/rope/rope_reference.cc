#include <cmath>

#include "kernels/cpu/fp8.h"
#include "kernels/rope/rope.h"

namespace lastflop {
namespace {

// Turns x[0, rotary_dim) at `position`; the result is rounded to bf16, as the kernel stores it.
void TurnReference(const RopeShape& shape, int64_t position, float* x) {
  const int64_t half = shape.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(
        shape.theta, -2.0 * static_cast<double>(i) / static_cast<double>(shape.rotary_dim));
    const double angle = static_cast<double>(position) * frequency;
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    const float first = x[i];
    const float second = x[i + half];
    x[i] = RoundToBf16(first * cosine - second * sine);
    x[i + half] = RoundToBf16(second * cosine + first * sine);
  }
}

void WriteCache(CacheFormat format, std::span<std::byte> cache, int64_t index, float value) {
  if (format == CacheFormat::kFp8) {
    reinterpret_cast<Fp8*>(cache.data())[index] = ToFp8(value);
  } else {
    reinterpret_cast<Bf16*>(cache.data())[index] = ToBf16(value);
  }
}

// Position of a token in its sequence, and its row of the cache.
struct Place {
  int64_t position = 0;
  int64_t cache_row = 0;
};
Place PlaceOf(const RopeShape& shape, int64_t token) {
  const int64_t position = shape.context + token % shape.query_tokens;
  const int64_t sequence = token / shape.query_tokens;
  return {.position = position,
          .cache_row = sequence * (shape.context + shape.query_tokens) + position};
}

}  // namespace

void RopeGqaReference(const RopeShape& shape, std::span<float> qkv, const KvCache& cache) {
  const int64_t dim = shape.head_dim;
  const int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * dim;
  for (int64_t token = 0; token < shape.num_sequences * shape.query_tokens; ++token) {
    const Place place = PlaceOf(shape, token);
    float* const row = qkv.data() + token * width;
    for (int64_t head = 0; head < shape.num_heads + shape.num_kv_heads; ++head) {
      TurnReference(shape, place.position, row + head * dim);
    }
    const float* const keys = row + shape.num_heads * dim;
    const int64_t at = place.cache_row * shape.num_kv_heads * dim;
    for (int64_t i = 0; i < shape.num_kv_heads * dim; ++i) {
      WriteCache(shape.cache, cache.keys, at + i, keys[i]);
      WriteCache(shape.cache, cache.values, at + i, keys[shape.num_kv_heads * dim + i]);
    }
  }
}

void RopeMlaReference(const RopeShape& shape, std::span<const Bf16> query,
                      std::span<const Bf16> latents, std::span<float> absorbed,
                      const KvCache& cache) {
  const int64_t rope = shape.qk_rope_head_dim;
  const int64_t num_tokens = shape.num_sequences * shape.query_tokens;
  const int64_t cache_width = shape.kv_lora_rank + rope;
  const int64_t query_width = shape.qk_nope_head_dim + rope;
  std::vector<float> row(static_cast<size_t>(cache_width));
  for (int64_t token = 0; token < num_tokens; ++token) {
    const Place place = PlaceOf(shape, token);
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      const int64_t i = token * shape.num_heads + head;
      float* const tail = absorbed.data() + i * cache_width + shape.kv_lora_rank;
      for (int64_t d = 0; d < rope; ++d) {
        tail[d] = ToFloat(query[static_cast<size_t>(i * query_width + shape.qk_nope_head_dim + d)]);
      }
      TurnReference(shape, place.position, tail);
    }
    const int64_t latent_width = static_cast<int64_t>(latents.size()) / num_tokens;
    const Bf16* const from = latents.data() + (token + 1) * latent_width - cache_width;
    for (int64_t i = 0; i < cache_width; ++i) {
      row[static_cast<size_t>(i)] = ToFloat(from[i]);
    }
    TurnReference(shape, place.position, row.data() + shape.kv_lora_rank);
    for (int64_t i = 0; i < cache_width; ++i) {
      WriteCache(shape.cache, cache.keys, place.cache_row * cache_width + i,
                 row[static_cast<size_t>(i)]);
    }
  }
}

}  // namespace lastflop
