#include "spec/model_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"
#include "spec/model_reader.h"
#include "tests/spec/model_configs.h"

namespace lastflop {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Model KimiK25() {
  absl::StatusOr<Model> model = ReadModelFile("experiments/models/kimi-k2.5.json");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : Model{};
}

TEST(ModelJsonTest, HasWhatScriptsRelyOn) {
  const json document = json::parse(ModelToJsonDocument(KimiK25()));
  EXPECT_EQ(document["hidden_size"], 7168);
  EXPECT_EQ(document["num_layers"], 61);
  EXPECT_EQ(document["num_dense_layers"], 1);
  EXPECT_EQ(document["num_experts"], 384);
  EXPECT_EQ(document["top_k"], 8);
  EXPECT_EQ(document["moe_intermediate_size"], 2048);
  EXPECT_EQ(document["num_shared_experts"], 1);
  EXPECT_EQ(document["attention"]["kind"], "mla");
  EXPECT_EQ(document["attention"]["kv_lora_rank"], 512);
  EXPECT_EQ(document["expert_format"], "int4_g32");
  EXPECT_EQ(document["group_size"], 32);
  const auto expert_bytes = document["bytes"]["expert"].get<int64_t>();
  EXPECT_EQ(expert_bytes, 3 * 7168 * 2048 / 16 * 9);  // 4.5 bits a weight.
  EXPECT_EQ(document["bytes"]["experts_per_layer"], 384 * expert_bytes);
  EXPECT_GT(document["bytes"]["total"].get<int64_t>(), 60 * 384 * expert_bytes);
  EXPECT_TRUE(document["assumed"].is_array());
  EXPECT_EQ(document["not_modelled"].size(), 2);
}

TEST(ModelJsonTest, HasNullForWhatAModelDoesNotHave) {
  const absl::StatusOr<Model> model = ReadModelConfig(QwenConfig("qwen3_moe"), "qwen.json");
  ASSERT_TRUE(model.ok()) << model.status();
  const json document = json::parse(ModelToJsonDocument(*model));
  EXPECT_EQ(document["name"], "qwen");
  EXPECT_EQ(document["num_dense_layers"], 0);
  EXPECT_EQ(document["num_shared_experts"], 0);
  for (const char* const key :
       {"group_size", "shared_intermediate_size", "dense_intermediate_size"}) {
    EXPECT_TRUE(document.at(key).is_null()) << key;
  }
  EXPECT_TRUE(document["formats"]["shared"].is_null());
  EXPECT_EQ(document["formats"]["attention"], "bf16");
  EXPECT_EQ(document["attention"]["num_kv_heads"], 2);
}

TEST(ModelJsonTest, ListsInterleavedLayersAsRuns) {
  const absl::StatusOr<Model> model = ReadModelConfig(
      QwenConfig("qwen3_moe", R"("decoder_sparse_step": 2, "mlp_only_layers": [3])"), "qwen.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(json::parse(ModelToJsonDocument(*model))["layers"],
            json::parse(R"([{"kind": "dense", "num_layers": 1}, {"kind": "moe", "num_layers": 1},
                            {"kind": "dense", "num_layers": 2}])"));
}

TEST(ModelJsonTest, StaysJsonWhenANameIsNoUtf8) {
  Model model = KimiK25();
  model.name = "caf\xe9 \"x\"\n";
  EXPECT_TRUE(json::accept(ModelToJsonDocument(model)));
}

TEST(ModelJsonTest, ShowsPeopleTheSame) {
  const std::string table = ModelToTable(KimiK25());
  EXPECT_THAT(table, HasSubstr("num_layers             61: 1 dense 60 moe\n"));
  EXPECT_THAT(table, HasSubstr("expert_format          int4_g32, groups of 32\n"));
  EXPECT_THAT(table, HasSubstr("not modelled\n  text_config.rope_scaling: yarn"));
}

}  // namespace
}  // namespace lastflop
