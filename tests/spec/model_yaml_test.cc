#include "spec/model_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr absl::string_view kSizes = R"(schema: 1
name: mine
hidden_size: 256
vocab_size: 1000
num_layers: 4
num_experts: 16
top_k: 2
moe_intermediate_size: 64
)";
constexpr absl::string_view kGqa =
    "attention: {kind: gqa, num_heads: 4, num_kv_heads: 2, head_dim: 32}\n";

absl::StatusOr<Model> Read(absl::string_view more) {
  return ReadModelYaml(absl::StrCat(kSizes, more), "m.yaml");
}

std::string ErrorOf(absl::string_view more) {
  const absl::StatusOr<Model> model = Read(more);
  return model.ok() ? "" : std::string(model.status().message());
}

TEST(ModelYamlTest, ReadsAModelWithGroupedQueryAttention) {
  const absl::StatusOr<Model> model = Read(absl::StrCat(kGqa, R"(dense_layers: 1
dense_intermediate_size: 512
num_shared_experts: 2
router: {scoring: sigmoid, has_bias: true, num_groups: 4, top_k_groups: 2, renormalize: true}
formats: {experts: int4_g32, attention: fp8_block}
)"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "mine");
  EXPECT_THAT(model->layer_kinds,
              ElementsAre(LayerKind::kDense, LayerKind::kMoe, LayerKind::kMoe, LayerKind::kMoe));
  EXPECT_EQ(model->shared_intermediate_size, 128);
  EXPECT_EQ(model->attention.rotary_dim, 32);
  EXPECT_EQ(model->router.num_groups, 4);
  EXPECT_EQ(model->experts, StorageOf(WeightFormat::kInt4G32));
  EXPECT_EQ(model->attention_weights, StorageOf(WeightFormat::kFp8Block));
  EXPECT_EQ(model->lm_head, WeightStorage{});
  EXPECT_THAT(model->assumed, ElementsAre());
}

TEST(ModelYamlTest, ReadsLatentAttentionAndListedDenseLayers) {
  const absl::StatusOr<Model> model = Read(R"(dense_layers: [0, 2]
dense_intermediate_size: 512
attention: {kind: mla, num_heads: 4, kv_lora_rank: 32, qk_nope_head_dim: 24, qk_rope_head_dim: 8,
            v_head_dim: 16}
)");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->layer_kinds,
              ElementsAre(LayerKind::kDense, LayerKind::kMoe, LayerKind::kDense, LayerKind::kMoe));
  EXPECT_EQ(model->attention.kind, AttentionKind::kMla);
  EXPECT_EQ(model->attention.rotary_dim, 8);
  EXPECT_THAT(model->assumed, Contains(HasSubstr("expert_format: bf16")));
  EXPECT_THAT(model->assumed, Contains(HasSubstr("router: softmax")));
}

TEST(ModelYamlTest, SaysWhatIsMissingUnknownOrOutOfRange) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("m.yaml:1:1: attention: the key is missing"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kGqa, "num_expert: 3\n")), HasSubstr("m.yaml:10:1: num_expert"));
  EXPECT_THAT(ErrorOf("attention: {kind: gqa, num_heads: 4, num_kv_heads: 3, head_dim: 32}\n"),
              HasSubstr("m.yaml:9:52: attention.num_kv_heads: 3: must divide the 4 query heads"));
  EXPECT_THAT(ErrorOf("attention: {kind: gqa, num_heads: 4, head_dim: 32, kv_lora_rank: 8}\n"),
              HasSubstr("attention.kv_lora_rank"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kGqa, "router: {num_groups: 3}\n")),
              HasSubstr("router.num_groups: 3: must divide the 16 experts"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kGqa, "dense_layers: [4]\ndense_intermediate_size: 8\n")),
              HasSubstr("dense_layers[0]"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kGqa, "dense_layers: 4\ndense_intermediate_size: 8\n")),
              HasSubstr("dense_layers: leaves no layer with experts"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kGqa, "dense_intermediate_size: 8\n")),
              HasSubstr("dense_intermediate_size: needs dense_layers"));
  EXPECT_THAT(ErrorOf(absl::StrCat(kGqa, "formats: {experts: int3}\n")),
              HasSubstr("formats.experts"));
}

TEST(ModelYamlTest, RefusesMoreChosenExpertsThanThereAre) {
  const absl::StatusOr<Model> model = ReadModelYaml(
      "schema: 1\nname: m\nhidden_size: 8\nvocab_size: 8\nnum_layers: 1\nnum_experts: 4\n"
      "top_k: 5\nmoe_intermediate_size: 8\n"
      "attention: {kind: gqa, num_heads: 1, head_dim: 8}\n",
      "m.yaml");
  EXPECT_EQ(model.status().message(), "m.yaml:7:8: top_k: 5: must be at most the 4 experts");
}

}  // namespace
}  // namespace lastflop
