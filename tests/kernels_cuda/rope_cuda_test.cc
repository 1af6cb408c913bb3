#include "kernels/rope/rope_cuda.h"

#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/cpu/fp8.h"
#include "kernels/rope/rope.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

// A step of fp8 e4m3 is up to an eighth of a value: rounding the other way, and only that, differs.
double CacheLimit(CacheFormat format) {
  return format == CacheFormat::kFp8 ? 0.06 : Tolerance(2, 1);
}

std::vector<float> CacheFloats(const std::vector<std::byte>& cache, CacheFormat format) {
  const auto count = cache.size() / static_cast<size_t>(CacheElementBytes(format));
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(format == CacheFormat::kFp8
                         ? ToFloat(reinterpret_cast<const Fp8*>(cache.data())[i])
                         : ToFloat(reinterpret_cast<const Bf16*>(cache.data())[i]));
  }
  return values;
}

// Places of new tokens in a cache; the others must stay what they were.
void ExpectSameCache(const RopeShape& shape, const std::vector<std::byte>& got,
                     const std::vector<std::byte>& want) {
  const AttentionShape attention = AttentionOf(shape);
  const int64_t width = WidthsOf(attention).cache_stride;
  EXPECT_LE(RowError(CacheFloats(got, shape.cache), CacheFloats(want, shape.cache), width),
            CacheLimit(shape.cache));
}

std::vector<std::byte> ZeroCache(const RopeShape& shape) {
  const AttentionShape attention = AttentionOf(shape);
  return std::vector<std::byte>(
      static_cast<size_t>(CacheElements(attention) * CacheElementBytes(shape.cache)));
}

RopeShape GqaShape(int64_t head_dim, int64_t rotary_dim, CacheFormat cache) {
  return {.kind = AttentionKind::kGqa,
          .num_sequences = 3,
          .query_tokens = 2,
          .context = 1000,
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = head_dim,
          .rotary_dim = rotary_dim,
          .theta = 1e6,
          .cache = cache};
}

TEST(RopeCudaTest, TurnsQueryAndKeyAndWritesTheCache) {
  LASTFLOP_NEED_GPU();
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
    for (const auto& [head_dim, rotary_dim] :
         std::vector<std::pair<int64_t, int64_t>>{{128, 128}, {128, 64}, {64, 64}, {20, 12}}) {
      RopeShape shape = GqaShape(head_dim, rotary_dim, format);
      shape.context = 37;
      const int64_t tokens = shape.num_sequences * shape.query_tokens;
      const int64_t width = 10 * head_dim;
      const std::vector<Bf16> qkv = RandomValues(tokens * width, 1, 2);
      std::vector<float> reference = Floats(qkv);
      std::vector<std::byte> keys = ZeroCache(shape);
      std::vector<std::byte> values = ZeroCache(shape);
      const DeviceArray<__nv_bfloat16> device_qkv(qkv);
      const DeviceArray<std::byte> device_keys(keys);
      const DeviceArray<std::byte> device_values(values);
      const DeviceArray<float2> table(RopeTableBytes(shape) / int64_t{sizeof(float2)});
      RopeGqaReference(shape, reference, {keys, values});
      LASTFLOP_EXPECT_OK(LaunchRopeTable(shape, table.get(), nullptr));
      LASTFLOP_EXPECT_OK(LaunchRopeGqa(shape, table.get(), device_qkv.get(),
                                       {device_keys.get(), device_values.get()}, nullptr));
      EXPECT_LE(RowError(device_qkv.Download<Bf16>(), reference, width), Tolerance(2, 1));
      ExpectSameCache(shape, device_keys.Download(), keys);
      ExpectSameCache(shape, device_values.Download(), values);
    }
  }
}

TEST(RopeCudaTest, TurnsMlaTailsAndWritesLatentAndKey) {
  LASTFLOP_NEED_GPU();
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
    for (const int64_t nope : {128, 20}) {
      const RopeShape shape = {.kind = AttentionKind::kMla,
                               .num_sequences = 3,
                               .query_tokens = 2,
                               .context = 50,
                               .num_heads = 5,
                               .num_kv_heads = 1,
                               .rotary_dim = 64,
                               .kv_lora_rank = 512,
                               .qk_nope_head_dim = nope,
                               .qk_rope_head_dim = 64,
                               .theta = 50000,
                               .cache = format};
      const int64_t tokens = shape.num_sequences * shape.query_tokens;
      const int64_t latent_stride = 1536 + 576;
      const std::vector<Bf16> query = RandomValues(tokens * 5 * (nope + 64), 1, 2);
      const std::vector<Bf16> latents = RandomValues(tokens * latent_stride, 2, 2);
      const std::vector<Bf16> absorbed = RandomValues(tokens * 5 * 576, 3, 2);
      std::vector<float> reference = Floats(absorbed);
      std::vector<std::byte> keys = ZeroCache(shape);
      const DeviceArray<__nv_bfloat16> device_query(query);
      const DeviceArray<__nv_bfloat16> device_latents(latents);
      const DeviceArray<__nv_bfloat16> device_absorbed(absorbed);
      const DeviceArray<std::byte> device_keys(keys);
      const DeviceArray<float2> table(RopeTableBytes(shape) / int64_t{sizeof(float2)});
      RopeMlaReference(shape, query, latents, reference, {keys, {}});
      LASTFLOP_EXPECT_OK(LaunchRopeTable(shape, table.get(), nullptr));
      LASTFLOP_EXPECT_OK(LaunchRopeMla(shape, table.get(), device_query.get(), device_latents.get(),
                                       latent_stride, device_absorbed.get(),
                                       {device_keys.get(), nullptr}, nullptr));
      EXPECT_LE(RowError(device_absorbed.Download<Bf16>(), reference, 576), Tolerance(2, 1));
      ExpectSameCache(shape, device_keys.Download(), keys);
    }
  }
}

TEST(RopeCudaTest, RefusesLatentsThatAreTooNarrow) {
  const RopeShape shape = {.kind = AttentionKind::kMla,
                           .num_sequences = 1,
                           .num_heads = 1,
                           .num_kv_heads = 1,
                           .rotary_dim = 64,
                           .kv_lora_rank = 512,
                           .qk_nope_head_dim = 128,
                           .qk_rope_head_dim = 64};
  EXPECT_EQ(LaunchRopeMla(shape, nullptr, nullptr, nullptr, 500, nullptr, {}, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
