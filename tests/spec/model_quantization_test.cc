// Which weights a quantization block quantizes, and how, in each published form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/model.h"
#include "spec/model_reader.h"
#include "tests/spec/model_configs.h"

namespace lastflop {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string Block(absl::string_view members) {
  return absl::StrCat(R"("quantization_config": {)", members, "}");
}

// A model with dense layers, shared experts and latent attention.
absl::StatusOr<Model> ReadWith(absl::string_view members) {
  return ReadModelConfig(
      DeepseekConfig("deepseek_v3", absl::StrCat(R"("q_lora_rank": 48, )", Block(members))),
      "config.json");
}

// The formats of a model's classes of weights: experts, shared, dense, attention, LM head.
std::string Formats(const absl::StatusOr<Model>& model) {
  if (!model.ok()) {
    return std::string(model.status().message());
  }
  return absl::StrCat(ToWord(model->experts.format), " ", ToWord(model->shared.format), " ",
                      ToWord(model->dense.format), " ", ToWord(model->attention_weights.format),
                      " ", ToWord(model->lm_head.format));
}

// compressed-tensors with one group of `weights`.
std::string CompressedTensors(absl::string_view weights, absl::string_view ignore) {
  return absl::StrCat(R"("quant_method": "compressed-tensors", "config_groups": {"group_0":
                         {"targets": ["Linear"], "weights": {)",
                      weights, R"(}}}, "ignore": [)", ignore, "]");
}

constexpr absl::string_view kInt4G32 =
    R"("type": "int", "num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": true)";

TEST(ModelQuantizationTest, ReadsFp8Blocks) {
  const absl::StatusOr<Model> model =
      ReadWith(R"("quant_method": "fp8", "weight_block_size": [128, 64])");
  EXPECT_EQ(Formats(model), "fp8_block fp8_block fp8_block fp8_block bf16");
  EXPECT_EQ(model->experts, (WeightStorage{WeightFormat::kFp8Block, 64, 128}));
  EXPECT_THAT(model->assumed, Contains(HasSubstr("activations: bf16 unless the plan sets")));
}

TEST(ModelQuantizationTest, ReadsFp8WithoutBlocksAndItsExceptions) {
  EXPECT_EQ(Formats(ReadWith(R"("quant_method": "fp8", "modules_to_not_convert":
                                ["gate", "self_attn", "mlp.shared_experts"])")),
            "fp8 bf16 fp8 bf16 bf16");
  EXPECT_THAT(Formats(ReadWith(R"("quant_method": "fp8", "weight_block_size": [128])")),
              HasSubstr("quantization_config.weight_block_size: has 1 sizes"));
}

TEST(ModelQuantizationTest, ReadsInt4ExpertsWithIgnoredModules) {
  EXPECT_EQ(Formats(ReadWith(CompressedTensors(
                kInt4G32, R"("lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                             "re:.*mlp\\.(gate|up|gate_up|down)_proj.*")"))),
            "int4_g32 bf16 bf16 bf16 bf16");
  EXPECT_EQ(Formats(ReadWith(CompressedTensors(kInt4G32, ""))),
            "int4_g32 int4_g32 int4_g32 int4_g32 int4_g32");
}

TEST(ModelQuantizationTest, ReadsEachGroupForItsTargets) {
  EXPECT_EQ(Formats(ReadWith(absl::StrCat(
                R"("quant_method": "compressed-tensors", "config_groups": {
                   "attention": {"targets": ["re:.*self_attn.*"],
                                 "weights": {"type": "float", "num_bits": 8, "strategy": "channel"}},
                   "experts": {"targets": ["re:.*mlp.experts.*"], "weights": {)",
                kInt4G32, "}}}"))),
            "int4_g32 bf16 bf16 fp8 bf16");
}

TEST(ModelQuantizationTest, ReadsTheOtherFormatsOfCompressedTensors) {
  const auto experts = [](absl::string_view weights) {
    const absl::StatusOr<Model> model = ReadWith(CompressedTensors(weights, ""));
    return model.ok() ? std::string(ToWord(model->experts.format))
                      : std::string(model.status().message());
  };
  EXPECT_EQ(experts(R"("type": "int", "num_bits": 4, "group_size": 128)"), "int4_g128");
  EXPECT_EQ(experts(R"("type": "float", "num_bits": 8, "strategy": "tensor")"), "fp8");
  EXPECT_EQ(experts(R"("type": "float", "num_bits": 8, "strategy": "block",
                       "block_structure": [128, 128])"),
            "fp8_block");
  EXPECT_EQ(experts(R"("type": "float", "num_bits": 4, "group_size": 16)"), "nvfp4");
  EXPECT_EQ(experts(R"("type": "float", "num_bits": 4, "group_size": 32)"), "mxfp4");
  EXPECT_THAT(experts(R"("type": "int", "num_bits": 8, "strategy": "channel")"),
              HasSubstr("group_0.weights.num_bits: 8-bit int weights are not modelled"));
  EXPECT_THAT(experts(R"("type": "int", "num_bits": 4, "group_size": 64)"),
              HasSubstr("group_size: 64: int4 weights are modelled in groups of 32 and 128"));
}

TEST(ModelQuantizationTest, RefusesScalesThatItsFormatsDoNotHave) {
  const auto error = [](absl::string_view weights) {
    return Formats(ReadWith(CompressedTensors(weights, "")));
  };
  EXPECT_THAT(error(R"("type": "float", "num_bits": 8, "strategy": "group", "group_size": 32)"),
              HasSubstr("group_0.weights.strategy: \"group\": 8-bit floats are modelled with"));
  EXPECT_THAT(error(R"("type": "float", "num_bits": 8, "group_size": 32)"),
              HasSubstr("group_0.weights.group_size: 8-bit floats are modelled with"));
  EXPECT_THAT(error(R"("type": "int", "num_bits": 4, "strategy": "channel", "group_size": 32)"),
              HasSubstr("group_0.weights.strategy: \"channel\": int4 weights are modelled with"));
  EXPECT_THAT(error(R"("type": "float", "num_bits": 4, "strategy": "channel", "group_size": 16)"),
              HasSubstr("group_0.weights.strategy: \"channel\": 4-bit floats"));
  EXPECT_THAT(Formats(ReadWith(R"("quant_method": "fp8", "fmt": "e5m2")")),
              HasSubstr("quantization_config.fmt: \"e5m2\""));
}

TEST(ModelQuantizationTest, RefusesModeloptGroupsThatAreNotThoseOfItsAlgorithm) {
  EXPECT_THAT(Formats(ReadWith(R"("quant_algo": "NVFP4", "group_size": 32)")),
              HasSubstr("quantization_config.group_size: 32: NVFP4 has 16"));
  EXPECT_THAT(Formats(ReadWith(R"("quant_algo": "NVFP4", "config_groups": {"group_0":
                                  {"weights": {"num_bits": 4, "group_size": 32}}})")),
              HasSubstr("config_groups.group_0.weights.group_size: 32: NVFP4 has 16"));
  EXPECT_THAT(Formats(ReadWith(R"("quant_algo": "FP8", "config_groups": {"group_0":
                                  {"weights": {"num_bits": 4}}})")),
              HasSubstr("config_groups.group_0.weights.num_bits: 4: FP8 has 8"));
  EXPECT_EQ(Formats(ReadWith(R"("quant_algo": "NVFP4", "group_size": 16, "config_groups":
                                {"group_0": {"weights": {"num_bits": 4, "group_size": 16}}})")),
            "nvfp4 nvfp4 nvfp4 nvfp4 nvfp4");
}

TEST(ModelQuantizationTest, SaysThatTheCacheOfANestedModeloptBlockIsQuantized) {
  const absl::StatusOr<Model> model =
      ReadWith(R"("quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->assumed, Contains(HasSubstr("KV cache: bf16 unless")));
}

TEST(ModelQuantizationTest, ReadsSparseInt4) {
  const absl::StatusOr<Model> model =
      ReadWith(absl::StrCat(CompressedTensors(kInt4G32, R"("lm_head")"),
                            R"(, "sparsity_config": {"format": "sparse-24-bitmask"})"));
  EXPECT_EQ(Formats(model), "int4_g32_24 int4_g32_24 int4_g32_24 int4_g32_24 bf16");
}

TEST(ModelQuantizationTest, ReadsModeloptInBothPlaces) {
  EXPECT_EQ(Formats(ReadWith(R"("quant_method": "modelopt", "quant_algo": "NVFP4",
                                "ignore": ["lm_head", "model.layers.*.self_attn*"])")),
            "nvfp4 nvfp4 nvfp4 bf16 bf16");
  EXPECT_EQ(Formats(ReadWith(R"("producer": {"name": "modelopt"}, "quantization":
                                {"quant_algo": "FP8", "exclude_modules": ["lm_head"]})")),
            "fp8 fp8 fp8 fp8 bf16");
  EXPECT_THAT(Formats(ReadWith(R"("quant_method": "modelopt", "quant_algo": "INT3")")),
              HasSubstr("quantization_config.quant_algo: \"INT3\": known are NVFP4"));
}

TEST(ModelQuantizationTest, ReadsMxfp4AsTheExpertsOnly) {
  EXPECT_EQ(Formats(ReadWith(R"("quant_method": "mxfp4", "modules_to_not_convert":
                                ["model.layers.*.self_attn", "lm_head"])")),
            "mxfp4 bf16 bf16 bf16 bf16");
}

TEST(ModelQuantizationTest, ReadsAwqAndGptq) {
  const absl::StatusOr<Model> awq =
      ReadWith(R"("quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true)");
  EXPECT_EQ(Formats(awq), "int4_g128 int4_g128 int4_g128 int4_g128 bf16");
  EXPECT_THAT(awq->not_modelled, Contains(HasSubstr("zero points")));
  EXPECT_EQ(Formats(ReadWith(R"("quant_method": "gptq", "bits": 4, "group_size": 32,
                                "dynamic": {"-:.*attn.*": {}})")),
            "int4_g32 int4_g32 int4_g32 bf16 bf16");
  EXPECT_THAT(Formats(ReadWith(R"("quant_method": "gptq", "bits": 8, "group_size": 128)")),
              HasSubstr("quantization_config.bits: 8"));
}

TEST(ModelQuantizationTest, ReportsAClassOfWeightsInSeveralFormats) {
  const absl::StatusOr<Model> model = ReadWith(
      R"("quant_method": "fp8", "modules_to_not_convert": ["model.layers.1.mlp.experts"])");
  EXPECT_EQ(Formats(model), "fp8 fp8 fp8 fp8 bf16");
  EXPECT_THAT(model->not_modelled,
              Contains("weights of experts in several formats: all are taken as fp8"));
}

TEST(ModelQuantizationTest, LeavesActivationsAndCacheToThePlan) {
  const absl::StatusOr<Model> model = ReadWith(
      R"("quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}, "config_groups":
         {"group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8},
                      "weights": {"type": "float", "num_bits": 8}}})");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->assumed, Contains(HasSubstr("activations: bf16 unless")));
  EXPECT_THAT(model->assumed, Contains(HasSubstr("KV cache: bf16 unless")));
}

TEST(ModelQuantizationTest, FindsTheBlockInsideOrAroundTheTextConfig) {
  const std::string block = Block(R"("quant_method": "fp8")");
  const std::string plain = DeepseekConfig("kimi_k2");
  const std::string quantized = DeepseekConfig("kimi_k2", block);
  for (const std::string& config : {absl::StrCat(R"({"text_config": )", quantized, "}"),
                                    absl::StrCat(R"({"text_config": )", plain, ", ", block, "}")}) {
    EXPECT_EQ(Formats(ReadModelConfig(config, "c.json")), "fp8 fp8 fp8 fp8 bf16");
  }
}

TEST(ModelQuantizationTest, RefusesBlocksThatItDoesNotKnow) {
  EXPECT_THAT(Formats(ReadWith(R"("quant_method": "bitsandbytes")")),
              HasSubstr("quantization_config.quant_method: \"bitsandbytes\": known are fp8"));
  EXPECT_THAT(Formats(ReadWith(R"("quant_method": "fp8", "modules_to_not_convert": ["re:("])")),
              HasSubstr("is no regular expression"));
  EXPECT_THAT(Formats(ReadWith(R"("quant_method": "compressed-tensors")")),
              HasSubstr("quantization_config.config_groups: must be an object"));
  EXPECT_THAT(Formats(ReadModelConfig(DeepseekConfig("kimi_k2", R"("quantization_config": "fp8")"),
                                      "c.json")),
              HasSubstr("quantization_config: must be an object"));
}

}  // namespace
}  // namespace lastflop
