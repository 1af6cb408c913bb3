#include "spec/model_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/spec/model_configs.h"

namespace lastflop {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string ErrorOf(const std::string& config) {
  const absl::StatusOr<Model> model = ReadModelConfig(config, "m/config.json");
  return model.ok() ? "" : std::string(model.status().message());
}

TEST(ModelReaderTest, SaysFileLineColumnAndPathOfAWrongValue) {
  EXPECT_EQ(ErrorOf("{\"model_type\": \"mixtral\", \"num_local_experts\": 8,\n"
                    "  \"hidden_size\": -5}"),
            "m/config.json:2:3: hidden_size: -5: must be a whole number from 1 to 16777216");
  EXPECT_EQ(ErrorOf("{\"text_config\":\r\n {\"model_type\": \"mixtral\", \"num_experts\": 8,\r\n"
                    "  \"hidden_size\": \"5\"}}"),
            "m/config.json:3:3: text_config.hidden_size: \"5\": must be a whole number from 1 to "
            "16777216");
  EXPECT_THAT(ErrorOf("{\"model_type\": \"mixtral\", \"num_experts\": 8}"),
              HasSubstr("m/config.json:1:1: hidden_size: is missing"));
}

TEST(ModelReaderTest, KeepsControlCharactersOfTheFileFromTheTerminal) {
  EXPECT_EQ(ErrorOf(R"({"num_experts": 8, "model_type": "\u001b[31mred\u009b\u0007"})"),
            ErrorOf(R"({"num_experts": 8, "model_type": " [31mred  "})"));
}

TEST(ModelReaderTest, RefusesSizesThatAreNone) {
  for (const char* const size :
       {"0", "-1", "-8.0", "8.5", "1e-3", "true", "\"8\"", "[8]", "99999999999999999999"}) {
    const std::string error =
        ErrorOf(QwenConfig("qwen3_moe", std::string(R"("head_dim": )") + size));
    EXPECT_THAT(error, HasSubstr("head_dim: ")) << size;
  }
}

TEST(ModelReaderTest, TakesWholeNumbersThatAreWrittenWithAPoint) {
  const absl::StatusOr<Model> model = ReadModelConfig(
      QwenConfig("qwen3_moe", R"("head_dim": 64.0, "mlp_only_layers": [1.0])"), "m.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->attention.head_dim, 64);
  EXPECT_EQ(model->layer_kinds[1], LayerKind::kDense);
}

TEST(ModelReaderTest, RefusesNoExpertsAndMoreChosenThanThereAre) {
  const auto config = [](const char* num_experts, const char* top_k) {
    return std::string(R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2,
        "vocab_size": 100, "num_attention_heads": 4, "intermediate_size": 64,
        "num_local_experts": )") +
           num_experts + R"(, "num_experts_per_tok": )" + top_k + "}";
  };
  EXPECT_EQ(ErrorOf(config("8", "2")), "");
  EXPECT_THAT(ErrorOf(config("0", "2")), HasSubstr("num_local_experts: 0: must be"));
  EXPECT_THAT(ErrorOf(config("8", "0")), HasSubstr("num_experts_per_tok: 0: must be"));
  EXPECT_THAT(ErrorOf(config("8", "9")),
              HasSubstr("num_experts_per_tok: 9: must be at most the 8 experts"));
}

TEST(ModelReaderTest, RefusesHeadsThatDoNotDivide) {
  const auto config = [](const char* heads, const char* kv_heads) {
    return std::string(R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2,
        "vocab_size": 100, "num_local_experts": 8, "num_experts_per_tok": 2,
        "intermediate_size": 64, "num_attention_heads": )") +
           heads + R"(, "num_key_value_heads": )" + kv_heads + "}";
  };
  EXPECT_THAT(ErrorOf(config("4", "3")), HasSubstr("num_key_value_heads: 3: must divide the 4"));
  EXPECT_THAT(ErrorOf(config("4", "8")), HasSubstr("num_key_value_heads: 8: must be"));
  EXPECT_THAT(ErrorOf(config("5", "5")), HasSubstr("must divide hidden_size=64"));
}

TEST(ModelReaderTest, RefusesAKeyTwiceAlsoWhenItIsWrittenOtherwise) {
  EXPECT_EQ(ErrorOf("{\"a\": {\"b\\\"\": 1,\n \"b\\\"\": 2}}"),
            "m/config.json:2:2: a.b\": the key stands twice");
  EXPECT_THAT(ErrorOf("{\"hidden_size\": 1, \"hidden\\u005fsize\": 2}"),
              HasSubstr("1:20: hidden_size: the key stands twice"));
}

TEST(ModelReaderTest, RefusesWhatIsNoJsonObject) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("m/config.json:1:1: (file): not JSON at the end of the file"));
  EXPECT_THAT(ErrorOf("{\"a\": 1,\n}"), HasSubstr("m/config.json:2:1: (file): not JSON at"));
  EXPECT_THAT(ErrorOf("{\"a\": NaN}"), HasSubstr("not JSON at"));
  EXPECT_THAT(ErrorOf("{} {}"), HasSubstr("not JSON at"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("is a list: must be an object"));
  EXPECT_THAT(ErrorOf("{\"a\": \"\xe9\"}"), HasSubstr("not JSON at"));
  EXPECT_THAT(ErrorOf(std::string(100000, '[')), HasSubstr("nested deeper than 64 levels"));
}

TEST(ModelReaderTest, ReadsAByteOrderMarkAndCarriageReturns) {
  EXPECT_EQ(ErrorOf("\xef\xbb\xbf" + LocalExpertsConfig("mixtral", "\r\n\"x\": 1\r\n")), "");
}

TEST(ModelReaderTest, TakesAHugeNumberOfKeysInTheTimeOfAFew) {
  std::string more = R"("k": 1)";
  for (int i = 0; i < 100000; ++i) {
    absl::StrAppend(&more, ",\n\"k", i, "\": 1");
  }
  EXPECT_EQ(ErrorOf(LocalExpertsConfig("mixtral", more)), "");
}

TEST(ModelReaderTest, ListsWhatItAssumes) {
  const absl::StatusOr<Model> model = ReadModelConfig(
      R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
          "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 64,
          "num_attention_heads": 4})",
      "m.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->attention.num_kv_heads, 4);
  EXPECT_EQ(model->rope_theta, 1000000);
  for (const char* const key :
       {"num_key_value_heads: 4", "head_dim: 16", "rope_theta: 1e+06",
        "max_position_embeddings: ", "tie_word_embeddings: false", "expert_format: bf16"}) {
    EXPECT_THAT(model->assumed, Contains(HasSubstr(key)));
  }
}

TEST(ModelReaderTest, RefusesHeadsThatDoNotTurnInPairs) {
  const absl::StatusOr<Model> model = ReadModelConfig(
      "{\"model_type\": \"mixtral\", \"hidden_size\": 60, \"num_hidden_layers\": 2,\n"
      "\"vocab_size\": 100, \"num_local_experts\": 8, \"num_experts_per_tok\": 2,\n"
      "\"intermediate_size\": 64, \"num_attention_heads\": 4,\n"
      "\"head_dim\": 15}",
      "m.json");
  EXPECT_THAT(std::string(model.status().message()),
              testing::StartsWith("m.json:4:1: head_dim: 15 rotated dimensions: must be even"));
}

TEST(ModelReaderTest, SaysWhereHeadsOfAnOddWidthComeFrom) {
  EXPECT_THAT(
      ErrorOf("{\"model_type\": \"mixtral\", \"hidden_size\": 60, \"num_hidden_layers\": 2,\n"
              "\"vocab_size\": 100, \"num_local_experts\": 8, \"num_experts_per_tok\": 2,\n"
              "\"intermediate_size\": 64,\n\"num_attention_heads\": 4}"),
      testing::StartsWith("m/config.json:4:1: num_attention_heads: 15 rotated"));
}

TEST(ModelReaderTest, RefusesPartsThatAreNoObjects) {
  EXPECT_THAT(ErrorOf(QwenConfig("qwen3_moe", R"("rope_scaling": "yarn")")),
              HasSubstr("rope_scaling: \"yarn\": must be an object"));
  EXPECT_THAT(ErrorOf(QwenConfig("qwen3_moe", R"("rope_parameters": [1])")),
              HasSubstr("rope_parameters: a list: must be an object"));
  EXPECT_THAT(ErrorOf(QwenConfig("qwen3_moe", R"("text_config": [1])")),
              HasSubstr("text_config: a list: must be an object"));
  EXPECT_EQ(ErrorOf(QwenConfig("qwen3_moe", R"("text_config": null, "rope_scaling": null)")), "");
}

TEST(ModelReaderTest, FindsTheLanguageModelWhereverItIsPublished) {
  const std::string qwen = QwenConfig("qwen3_omni_moe_text");
  const absl::StatusOr<Model> omni = ReadModelConfig(
      R"({"model_type": "qwen3_omni_moe", "talker_config": {}, "thinker_config": {"audio_config": {},
          "text_config": )" +
          qwen + "}}",
      "omni.json");
  ASSERT_TRUE(omni.ok()) << omni.status();
  EXPECT_EQ(omni->num_experts, 16);
  EXPECT_THAT(omni->not_modelled, Contains(HasSubstr("talker_config: only the language")));
  EXPECT_THAT(omni->not_modelled, Contains(HasSubstr("thinker_config.audio_config: only")));
  EXPECT_EQ(ErrorOf(R"({"model_type": "deepseek_vl_v2", "language_config": )" +
                    DeepseekConfig("deepseek_v2") + "}"),
            "");
  EXPECT_THAT(ErrorOf(R"({"model_type": "x", "thinker_config": {"text_config":
                          {"num_experts": 2, "model_type": "qwen3_moe", "hidden_size": 0}}})"),
              HasSubstr("thinker_config.text_config.hidden_size: 0: must be"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "x"})"),
              HasSubstr("here or in text_config, language_config, llm_config and thinker_config."));
}

TEST(ModelReaderTest, TakesTheTypeAroundALanguageModelThatSaysNone) {
  const auto inside = [](const std::string& around) {
    std::string text = DeepseekConfig("");
    text.replace(text.find(R"("model_type": "", )"), 18, "");
    const absl::StatusOr<Model> model = ReadModelConfig(
        R"({"model_type": ")" + around + R"(", "text_config": )" + text + "}", "m.json");
    return model.ok() ? model->model_type : std::string(model.status().message());
  };
  EXPECT_EQ(inside("deepseek_v3"), "deepseek_v3");
  EXPECT_EQ(inside("kimi_k25"), "kimi_k2");
  EXPECT_THAT(inside("other"), HasSubstr("\"other\" is not known"));
}

TEST(ModelReaderTest, NamesLayerTypesAndRefusesLinearOnes) {
  EXPECT_THAT(ErrorOf(QwenConfig("qwen3_moe", R"("layer_types": ["linear_attention",
                          "linear_attention", "linear_attention", "full_attention"])")),
              HasSubstr("has layer_types with linear_attention: layers of linear attention"));
  const absl::StatusOr<Model> model = ReadModelConfig(
      QwenConfig("qwen3_moe", R"("layer_types": ["full_attention", "sliding_attention",
                                 "sliding_attention", "odd_attention"])"),
      "m.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->not_modelled, Contains(HasSubstr("sliding_attention in 2 of 4 layers")));
  EXPECT_THAT(model->not_modelled, Contains(HasSubstr("odd_attention in 1 of 4 layers")));
}

TEST(ModelReaderTest, NamesADtypeThatIsNotBf16) {
  const auto read = [](const std::string& more) {
    const absl::StatusOr<Model> model = ReadModelConfig(QwenConfig("qwen3_moe", more), "m.json");
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *model : Model{};
  };
  EXPECT_THAT(read(R"("torch_dtype": "float32")").not_modelled,
              Contains(HasSubstr("torch_dtype: float32 without a quantization block")));
  EXPECT_THAT(read(R"("dtype": "float8_e4m3fn")").not_modelled,
              Contains(HasSubstr("dtype: float8_e4m3fn without a quantization block")));
  EXPECT_THAT(read(R"("dtype": "torch.float16")").assumed, Contains(HasSubstr("float16")));
  EXPECT_THAT(read(R"("dtype": "torch.bfloat16")").not_modelled, testing::IsEmpty());
}

TEST(ModelReaderTest, FindsRopeThetaInRopeParameters) {
  const absl::StatusOr<Model> model = ReadModelConfig(
      R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
          "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 64,
          "num_attention_heads": 4, "rope_parameters": {"rope_theta": 5000, "rope_type": "yarn"}})",
      "m.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->rope_theta, 5000);
  EXPECT_THAT(model->not_modelled, Contains(HasSubstr("rope_parameters: yarn")));
}

TEST(ModelReaderTest, NamesAModelAfterItsFile) {
  EXPECT_EQ(ModelNameOf("models/Kimi-K2.5.config.json"), "Kimi-K2.5");
  EXPECT_EQ(ModelNameOf("kimi-k2.5.json"), "kimi-k2.5");
  EXPECT_EQ(ModelNameOf("/data/GLM-5-NVFP4/config.json"), "GLM-5-NVFP4");
  EXPECT_EQ(ModelNameOf("config.json"), "config");
}

TEST(ModelReaderTest, ReadsAYamlByItsName) {
  const absl::StatusOr<Model> model = ReadModelFile("experiments/models/tiny.yaml");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "tiny");
  EXPECT_EQ(model->num_dense_layers(), 1);
}

TEST(ModelReaderTest, SaysThatAFileIsNotThere) {
  EXPECT_FALSE(ReadModelFile("experiments/models/none.json").ok());
  EXPECT_FALSE(ReadModelFile("experiments").ok());
}

}  // namespace
}  // namespace lastflop
