#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_builds.h"

namespace lastflop {
namespace {

void Turn(const float* cosines, const float* sines, int64_t half, const Bf16* in, Bf16* out,
          VectorIsa isa) {
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    TurnAvx2(cosines, sines, half, in, out);
    return;
  }
#endif
  static_cast<void>(isa);
  TurnPortable(cosines, sines, half, in, out);
}

// Writes `count` elements to the cache from element `at` on.
void WriteCache(CacheFormat format, const Bf16* in, int64_t count, std::span<std::byte> cache,
                int64_t at, VectorIsa isa) {
  if (format == CacheFormat::kBf16) {
    std::memcpy(cache.data() + at * 2, in, static_cast<size_t>(count) * sizeof(Bf16));
    return;
  }
  auto* const out = reinterpret_cast<Fp8*>(cache.data()) + at;
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    Bf16ToFp8Avx2(in, count, out);
    return;
  }
#endif
  static_cast<void>(isa);
  Bf16ToFp8Portable(in, count, out);
}

// Row of the cache that a token is written to.
int64_t CacheRow(const RopeShape& shape, int64_t token) {
  return token / shape.query_tokens * (shape.context + shape.query_tokens) + shape.context +
         token % shape.query_tokens;
}

}  // namespace

RopeTable::RopeTable(const RopeShape& shape) : half_(shape.rotary_dim / 2) {
  for (int64_t token = 0; token < shape.query_tokens; ++token) {
    const auto position = static_cast<double>(shape.context + token);
    for (int64_t i = 0; i < half_; ++i) {
      const double exponent = -static_cast<double>(i) / static_cast<double>(half_);
      const double angle = position * std::pow(shape.theta, exponent);
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

absl::Status ValidateRope(const RopeShape& shape) {
  const int64_t turned =
      shape.kind == AttentionKind::kGqa ? shape.head_dim : shape.qk_rope_head_dim;
  // MLA's query tail and key are turned whole.
  const bool is_whole = shape.kind == AttentionKind::kGqa || shape.rotary_dim == turned;
  if (shape.num_sequences < 0 || shape.query_tokens < 1 || shape.context < 0 ||
      shape.num_heads < 1 || shape.num_kv_heads < 1 || turned < 1 || shape.rotary_dim < 0 ||
      shape.rotary_dim % 2 != 0 || shape.rotary_dim > turned || !is_whole || !(shape.theta > 0) ||
      shape.kv_lora_rank < 0 || shape.qk_nope_head_dim < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope: num_sequences=", shape.num_sequences,
                     " query_tokens=", shape.query_tokens, " context=", shape.context,
                     " num_heads=", shape.num_heads, " num_kv_heads=", shape.num_kv_heads,
                     " rotary_dim=", shape.rotary_dim, " of ", turned, " theta=", shape.theta,
                     ": rotary_dim is even and at most what it turns, all of it in mla"));
  }
  return absl::OkStatus();
}

AttentionShape AttentionOf(const RopeShape& shape) {
  return {.kind = shape.kind,
          .num_sequences = shape.num_sequences,
          .query_tokens = shape.query_tokens,
          .context = shape.context,
          .num_heads = shape.num_heads,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .kv_lora_rank = shape.kv_lora_rank,
          .qk_rope_head_dim = shape.qk_rope_head_dim,
          .softmax_scale = 1,
          .cache = shape.cache};
}

void RopeGqa(const RopeShape& shape, const RopeTable& table, std::span<Bf16> qkv,
             const KvCache& cache, ThreadPool& pool) {
  const int64_t dim = shape.head_dim;
  const int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * dim;
  const int64_t kv_width = shape.num_kv_heads * dim;
  pool.ParallelFor(shape.num_sequences * shape.query_tokens, [&](int64_t token, int /*thread*/) {
    Bf16* const row = qkv.data() + token * width;
    const int64_t index = token % shape.query_tokens;
    for (int64_t head = 0; head < shape.num_heads + shape.num_kv_heads; ++head) {
      Turn(table.cosines(index), table.sines(index), shape.rotary_dim / 2, row + head * dim,
           row + head * dim, pool.isa());
    }
    const Bf16* const keys = row + shape.num_heads * dim;
    const int64_t at = CacheRow(shape, token) * kv_width;
    WriteCache(shape.cache, keys, kv_width, cache.keys, at, pool.isa());
    WriteCache(shape.cache, keys + kv_width, kv_width, cache.values, at, pool.isa());
  });
}

void RopeMla(const RopeShape& shape, const RopeTable& table, std::span<const Bf16> query,
             std::span<const Bf16> latents, std::span<Bf16> absorbed, const KvCache& cache,
             ThreadPool& pool) {
  const int64_t num_tokens = shape.num_sequences * shape.query_tokens;
  if (num_tokens == 0) {
    return;
  }
  const int64_t rope = shape.qk_rope_head_dim;
  const int64_t latent_width = static_cast<int64_t>(latents.size()) / num_tokens;
  const int64_t cache_width = shape.kv_lora_rank + rope;
  const int64_t query_width = shape.qk_nope_head_dim + rope;
  pool.ParallelFor(num_tokens, [&](int64_t token, int thread) {
    const int64_t index = token % shape.query_tokens;
    const auto turn = [&](const Bf16* in, Bf16* out) {
      Turn(table.cosines(index), table.sines(index), rope / 2, in, out, pool.isa());
    };
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      const int64_t i = token * shape.num_heads + head;
      turn(query.data() + i * query_width + shape.qk_nope_head_dim,
           absorbed.data() + i * cache_width + shape.kv_lora_rank);
    }
    const Bf16* const latent = latents.data() + (token + 1) * latent_width - cache_width;
    auto* const key = reinterpret_cast<Bf16*>(pool.Scratch(thread));
    turn(latent + shape.kv_lora_rank, key);
    const int64_t at = CacheRow(shape, token) * cache_width;
    WriteCache(shape.cache, latent, shape.kv_lora_rank, cache.keys, at, pool.isa());
    WriteCache(shape.cache, key, rope, cache.keys, at + shape.kv_lora_rank, pool.isa());
  });
}

void TurnPortable(const float* cosines, const float* sines, int64_t half, const Bf16* in,
                  Bf16* out) {
  for (int64_t i = 0; i < half; ++i) {
    const float first = ToFloat(in[i]);
    const float second = ToFloat(in[i + half]);
    out[i] = ToBf16(first * cosines[i] - second * sines[i]);
    out[i + half] = ToBf16(second * cosines[i] + first * sines[i]);
  }
}

void Bf16ToFp8Portable(const Bf16* in, int64_t count, Fp8* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = ToFp8(ToFloat(in[i]));
  }
}

}  // namespace lastflop
