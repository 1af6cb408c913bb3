#include "spec/module_patterns.h"

#include <gtest/gtest.h>

#include <string>

namespace lastflop {
namespace {

bool Names(const std::string& pattern, const std::string& module) {
  ModulePatterns patterns;
  EXPECT_TRUE(patterns.Add(pattern).ok()) << pattern;
  return patterns.Matches(module);
}

TEST(ModulePatternsTest, NamesAModuleAndWhatIsInsideIt) {
  EXPECT_TRUE(Names("lm_head", "lm_head"));
  EXPECT_TRUE(Names("self_attn", "layers.3.self_attn.q_proj"));
  EXPECT_TRUE(Names("model.layers.3.self_attn", "layers.3.self_attn.q_proj"));
  EXPECT_TRUE(Names("model.layers.3.self_attn.q_proj", "layers.3.self_attn.q_proj"));
  EXPECT_FALSE(Names("model.layers.3.self_attn", "layers.30.self_attn.q_proj"));
}

TEST(ModulePatternsTest, TakesWholePartsOfAName) {
  // MiniMax lists the router's "gate", which is not every "gate_proj".
  EXPECT_TRUE(Names("gate", "layers.0.block_sparse_moe.gate"));
  EXPECT_FALSE(Names("gate", "layers.0.mlp.gate_proj"));
  EXPECT_FALSE(Names("*.mlp.gate", "layers.0.mlp.gate_proj"));
}

TEST(ModulePatternsTest, ReadsRegularExpressionsFromTheStart) {
  EXPECT_TRUE(Names("re:.*self_attn.*", "layers.0.self_attn.o_proj"));
  EXPECT_TRUE(Names("re:.*self_attn", "layers.0.self_attn.o_proj"));
  EXPECT_FALSE(Names("re:self_attn", "layers.0.self_attn.o_proj"));
  EXPECT_FALSE(Names("re:.*mlp\\.(gate|up|down)_proj.*", "layers.0.mlp.experts.0.up_proj"));
  EXPECT_TRUE(Names("re:.*mlp\\.(gate|up|down)_proj.*", "layers.0.mlp.up_proj"));
}

TEST(ModulePatternsTest, ReadsStarsAsAnything) {
  EXPECT_TRUE(Names("model.layers.*.self_attn", "layers.17.self_attn.k_proj"));
  EXPECT_TRUE(Names("model.layers.0*", "layers.0.mlp.up_proj"));
  EXPECT_FALSE(Names("model.layers.0*", "layers.1.mlp.up_proj"));
}

TEST(ModulePatternsTest, TriesEveryUsualPrefix) {
  EXPECT_TRUE(Names("language_model.model.layers.2.self_attn", "layers.2.self_attn.q_proj"));
  EXPECT_TRUE(Names("language_model.lm_head", "lm_head"));
}

TEST(ModulePatternsTest, MatchesInTimeLinearInTheName) {
  // By backtracking this takes longer than anyone waits.
  EXPECT_FALSE(Names("re:(.*)*(.*)*(.*)*(.*)*x", "layers.0.self_attn.o_proj"));
  std::string name(2000, 'a');
  name.push_back('b');
  EXPECT_FALSE(Names("re:(a+)+$", name));
}

TEST(ModulePatternsTest, RefusesExpressionsThatTakeBacktrackingOrMuchMemory) {
  for (const char* const pattern : {"re:(?!.*experts).*", "re:(a)\\1", "re:((a{100}){100}){100}"}) {
    ModulePatterns patterns;
    EXPECT_FALSE(patterns.Add(pattern).ok()) << pattern;
  }
}

TEST(ModulePatternsTest, RefusesWhatIsNoExpression) {
  ModulePatterns patterns;
  EXPECT_FALSE(patterns.Add("re:(").ok());
  EXPECT_FALSE(patterns.Add("re:" + std::string(5000, 'a')).ok());
  EXPECT_FALSE(patterns.Matches("a"));
}

}  // namespace
}  // namespace lastflop
