#include "step/make_step.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "step/layout.h"
#include "step/padded_experts.h"
#include "step/tensors.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Point Decode(int64_t batch, int64_t context) {
  Point point;
  point.batch = batch;
  point.context = context;
  return point;
}

Step StepOf(const Model& model, const Plan& plan, const Point& point, int rank = 0,
            const StepOptions& options = {}) {
  auto step = MakeStep(model, plan, point, rank, options);
  EXPECT_TRUE(step.ok()) << step.status();
  return step.ok() ? *std::move(step) : Step{};
}

std::vector<std::string> NamesOfLayer(const Step& step, int layer) {
  std::vector<std::string> names;
  for (const Op& op : step.ops) {
    if (op.layer == layer) {
      names.push_back(op.name);
    }
  }
  return names;
}

Op Find(const Step& step, const std::string& name) {
  for (const Op& op : step.ops) {
    if (op.name == name) {
      return op;
    }
  }
  ADD_FAILURE() << "no op " << name;
  return {};
}

template <typename Shape>
Shape ShapeOf(const Step& step, const std::string& name) {
  return std::get<Shape>(Find(step, name).shape);
}

bool Has(const Step& step, const std::string& name) {
  return std::any_of(step.ops.begin(), step.ops.end(),
                     [&](const Op& op) { return op.name == name; });
}

TEST(MakeStepTest, OrdersTheOpsOfAGqaMoeLayer) {
  Plan plan;
  plan.parallel.tensor = 2;
  const Step step = StepOf(QwenModel(), plan, Decode(4, 100));
  EXPECT_EQ(step.ops.front().name, "embedding");
  EXPECT_EQ(step.ops[1].name, "all_reduce.embedding");
  EXPECT_THAT(
      NamesOfLayer(step, 0),
      ElementsAre("attention.norm", "attention.qkv", "attention.query_norm", "attention.key_norm",
                  "attention.rope", "attention.attend", "attention.output", "all_reduce.attention",
                  "ffn.norm", "router.gemm", "router.top_k", "moe.permute", "moe.gate_up",
                  "moe.down", "moe.combine", "all_reduce.moe"));
  EXPECT_EQ(NamesOfLayer(step, 0), NamesOfLayer(step, 47));
  EXPECT_EQ(step.ops[step.ops.size() - 3].name, "final_norm");
  EXPECT_EQ(step.ops[step.ops.size() - 2].name, "lm_head");
  EXPECT_EQ(step.ops.back().name, "sampling");
}

TEST(MakeStepTest, OrdersTheOpsOfAbsorbedMlaWithDenseAndSharedExperts) {
  const Step step = StepOf(KimiModel(), Plan{}, Decode(1, 100));
  EXPECT_THAT(NamesOfLayer(step, 0),
              ElementsAre("attention.norm", "attention.mla_down", "attention.query_latent_norm",
                          "attention.kv_latent_norm", "attention.query_up", "attention.absorb",
                          "attention.rope", "attention.attend", "attention.value_up",
                          "attention.output", "ffn.norm", "ffn.gate_up", "ffn.swiglu", "ffn.down"));
  const std::vector<std::string> names = NamesOfLayer(step, 1);
  EXPECT_THAT(std::vector<std::string>(names.begin() + 11, names.end()),
              ElementsAre("router.gemm", "router.top_k", "shared.gate_up", "shared.swiglu",
                          "shared.down", "moe.permute", "moe.gate_up", "moe.down", "moe.combine"));
}

TEST(MakeStepTest, SeparateDequantizationComesBeforeGemmsThatReadItsCopies) {
  Plan plan;
  plan.moe.dequant = Dequant::kSeparate;
  const Step step = StepOf(KimiModel(), plan, Decode(1, 100));
  EXPECT_TRUE(Has(step, "moe.dequant_gate_up"));
  const Op gate_up = Find(step, "moe.gate_up");
  EXPECT_TRUE(gate_up.weights_dequantized);
  EXPECT_EQ(std::get<ExpertGemmShape>(gate_up.shape).storage.format, WeightFormat::kBf16);
  EXPECT_EQ(WeightMemoryBytes(gate_up), 0);
}

TEST(MakeStepTest, LeavesSwigluToTheGroupedKernelAndNotToThePlainOne) {
  Plan plan;
  const Step grouped = StepOf(KimiModel(), plan, Decode(4, 100));
  EXPECT_FALSE(Has(grouped, "moe.swiglu"));
  EXPECT_TRUE(Has(grouped, "shared.swiglu"));
  EXPECT_TRUE(ShapeOf<ExpertGemmShape>(grouped, "moe.gate_up").swiglu);
  EXPECT_EQ(Find(grouped, "moe.gate_up").out, Tensor::kExpertAct);
  EXPECT_FALSE(ShapeOf<ExpertGemmShape>(grouped, "moe.down").swiglu);
  EXPECT_FALSE(TensorBytes(grouped).contains(Tensor::kExpertGateUp));

  plan.moe.kernel = MoeKernel::kReference;
  const Step plain = StepOf(KimiModel(), plan, Decode(4, 100));
  EXPECT_TRUE(Has(plain, "moe.swiglu"));
  EXPECT_EQ(Find(plain, "moe.gate_up").out, Tensor::kExpertGateUp);
}

TEST(MakeStepTest, KeepsOfExpertsAloneWhatLiesBetweenIdsAndSum) {
  Plan plan;
  plan.parallel.tensor = 8;
  const auto step = MakeStep(KimiModel(), plan, Decode(4, 100), 0,
                             {.layers_kept = 1, .load = {}, .experts_only = true});
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_THAT(NamesOfLayer(*step, 1),
              ElementsAre("router.top_k", "moe.permute", "moe.gate_up", "moe.down", "moe.combine"));
  EXPECT_EQ(step->ops.size(), 5u);
  EXPECT_EQ(step->input, Tensor::kNormed);
  EXPECT_EQ(step->output, Tensor::kHidden);
  // Nobody makes the shared experts' output.
  EXPECT_FALSE(ShapeOf<CombineShape>(*step, "moe.combine").add_shared);
  EXPECT_FALSE(TensorBytes(*step).contains(Tensor::kSharedOut));
}

TEST(MakeStepTest, SlicesExpertsWithTensorAndKeepsThemWholeWithExpert) {
  Plan sliced;
  sliced.parallel.tensor = 8;
  const auto of_tensor =
      ShapeOf<ExpertGemmShape>(StepOf(KimiModel(), sliced, Decode(1, 1)), "moe.gate_up");
  EXPECT_EQ(of_tensor.num_local_experts, 384);
  EXPECT_EQ(of_tensor.out_features, 2 * 256);

  Plan whole = sliced;
  whole.parallel.expert = 8;
  const Step step = StepOf(KimiModel(), whole, Decode(1, 1), 3);
  const auto of_expert = ShapeOf<ExpertGemmShape>(step, "moe.gate_up");
  EXPECT_EQ(of_expert.num_local_experts, 48);
  EXPECT_EQ(of_expert.out_features, 2 * 2048);
  EXPECT_EQ(ShapeOf<PermuteShape>(step, "moe.permute").first_expert, 3 * 48);
  EXPECT_TRUE(Has(step, "all_reduce.moe"));
  EXPECT_FALSE(Has(step, "moe.dispatch"));
}

TEST(MakeStepTest, SlicesExpertsOfAGroupWhenExpertDividesTensor) {
  Plan plan;
  plan.parallel.tensor = 8;
  plan.parallel.expert = 4;
  const Step step = StepOf(KimiModel(), plan, Decode(1, 1), 5);
  const auto gemm = ShapeOf<ExpertGemmShape>(step, "moe.gate_up");
  EXPECT_EQ(gemm.num_local_experts, 96);
  EXPECT_EQ(gemm.out_features, 2 * 1024);
  EXPECT_EQ(ShapeOf<PermuteShape>(step, "moe.permute").first_expert, 2 * 96);
}

TEST(MakeStepTest, ExpertsOverRanksSumToAllOfThem) {
  for (const int64_t expert : {1, 2, 3, 8, 16}) {
    Plan plan;
    plan.parallel.data = expert;
    plan.parallel.expert = expert;
    int64_t sum = 0;
    for (int rank = 0; rank < expert; ++rank) {
      sum += MakeLayout(KimiModel(), plan, rank).num_local_experts;
    }
    EXPECT_EQ(sum, 384) << expert;
  }
}

TEST(MakeStepTest, DataAttentionSplitsSequencesAndKeepsAttentionWhole) {
  Plan plan;
  plan.parallel.tensor = 8;
  plan.parallel.expert = 8;
  plan.parallel.attention = AttentionParallel::kData;
  const Step first = StepOf(QwenModel(), plan, Decode(17, 100), 0);
  const Step last = StepOf(QwenModel(), plan, Decode(17, 100), 7);
  EXPECT_EQ(first.num_tokens, 3);  // ceil(17 / 8): the most loaded rank.
  EXPECT_EQ(last.num_tokens, 2);
  const auto attend = ShapeOf<AttentionShape>(first, "attention.attend");
  EXPECT_EQ(attend.num_heads, 32);
  EXPECT_EQ(attend.num_kv_heads, 4);
  EXPECT_FALSE(Has(first, "all_reduce.attention"));
  EXPECT_TRUE(Has(first, "moe.dispatch"));
  EXPECT_TRUE(Has(first, "moe.combine_all_to_all"));
  // A rank may receive the tokens of all.
  EXPECT_EQ(ShapeOf<ExpertGemmShape>(last, "moe.gate_up").num_tokens, 17);
}

TEST(MakeStepTest, DataReplicasHaveTensorGroupsOfTheirOwn) {
  Plan plan;
  plan.parallel.tensor = 2;
  plan.parallel.data = 3;
  const Step step = StepOf(QwenModel(), plan, Decode(10, 100), 2);
  EXPECT_EQ(step.num_tokens, 3);
  EXPECT_EQ(ShapeOf<AllReduceShape>(step, "all_reduce.moe").ranks, 2);
  EXPECT_THAT(MakeLayout(QwenModel(), plan, 3).tensor_group, ElementsAre(2, 3));
  EXPECT_EQ(StepOf(QwenModel(), plan, Decode(10, 100), 0).num_tokens, 4);
}

TEST(MakeStepTest, ReplicatesKvHeadsFewerThanRanks) {
  Plan plan;
  plan.parallel.tensor = 8;
  const auto attend =
      ShapeOf<AttentionShape>(StepOf(QwenModel(), plan, Decode(1, 100)), "attention.attend");
  EXPECT_EQ(attend.num_heads, 4);
  EXPECT_EQ(attend.num_kv_heads, 1);
}

TEST(MakeStepTest, DoesNotDivideAnMlaCacheByTensor) {
  Plan eight;
  eight.parallel.tensor = 8;
  const Step whole = StepOf(KimiModel(), Plan{}, Decode(2, 1000));
  const Step divided = StepOf(KimiModel(), eight, Decode(2, 1000));
  EXPECT_EQ(Find(whole, "attention.attend").work.cache_bytes, 2.0 * 1001 * 576 * 2);
  EXPECT_EQ(Find(divided, "attention.attend").work.cache_bytes, 2.0 * 1001 * 576 * 2);
}

TEST(MakeStepTest, PricesExpertsWithTheGivenLoad) {
  Plan plan;
  plan.parallel.tensor = 8;
  const StepOptions options{.layers_kept = 0, .load = {.pairs = 64, .unique_experts = 59.5}};
  const Step step = StepOf(KimiModel(), plan, Decode(8, 1), 0, options);
  const Work gate_up = Find(step, "moe.gate_up").work;
  const Work down = Find(step, "moe.down").work;
  EXPECT_DOUBLE_EQ(gate_up.flop, 2.0 * 64 * 512 * 7168 + 5.0 * 64 * 256);  // With SwiGLU.
  EXPECT_DOUBLE_EQ(down.flop, 2.0 * 64 * 7168 * 256);
  // 59.5 experts of 3 H I b / TP bytes, b = 0.5625 for int4_g32.
  EXPECT_DOUBLE_EQ(gate_up.weight_bytes + down.weight_bytes, 59.5 * 3 * 7168 * 2048 * 0.5625 / 8);
}

TEST(MakeStepTest, PadsEveryExpertToAllTokensForCublaslt) {
  Plan plan;
  plan.moe.kernel = MoeKernel::kCublaslt;
  const StepOptions options{.layers_kept = 1, .load = {.pairs = 48, .unique_experts = 40}};
  const Step step = StepOf(QwenModel(), plan, Decode(6, 1), 0, options);
  const std::vector<std::string> names = NamesOfLayer(step, 0);
  EXPECT_THAT(std::vector<std::string>(names.end() - 6, names.end()),
              ElementsAre("moe.permute", "moe.pad", "moe.gate_up", "moe.swiglu", "moe.down",
                          "moe.combine"));
  EXPECT_EQ(ShapeOf<PadShape>(step, "moe.pad").padded_rows, 6);
  EXPECT_EQ(ShapeOf<ExpertGemmShape>(step, "moe.down").padded_rows, 6);
  // Of 128 experts, whatever the load: 2 * 768 gate and up rows of 2048, 6 tokens each.
  const Work gate_up = Find(step, "moe.gate_up").work;
  const Work down = Find(step, "moe.down").work;
  EXPECT_DOUBLE_EQ(gate_up.flop, 2.0 * 128 * 6 * 1536 * 2048);
  EXPECT_DOUBLE_EQ(gate_up.weight_bytes, 128.0 * 1536 * 2048 * 2);
  EXPECT_DOUBLE_EQ(gate_up.activation_bytes, 128.0 * 6 * (1536 + 2048) * 2);
  EXPECT_DOUBLE_EQ(down.flop, 2.0 * 128 * 6 * 768 * 2048);
  EXPECT_DOUBLE_EQ(down.weight_bytes, 128.0 * 768 * 2048 * 2);
  // Of the pairs alone: they are what is copied, activated and summed.
  EXPECT_DOUBLE_EQ(Find(step, "moe.pad").work.activation_bytes, (6.0 + 48) * 2048 * 2);
  EXPECT_DOUBLE_EQ(Find(step, "moe.swiglu").work.activation_bytes, 3.0 * 48 * 768 * 2);
  EXPECT_DOUBLE_EQ(Find(step, "moe.combine").work.activation_bytes, (48.0 + 6) * 2048 * 2);
  std::map<Tensor, int64_t> bytes = TensorBytes(step);
  EXPECT_EQ(bytes[Tensor::kExpertPadded], 128 * 6 * 2048 * 2);
  EXPECT_EQ(bytes[Tensor::kExpertGateUp], 128 * 6 * 1536 * 2);
  EXPECT_EQ(bytes[Tensor::kExpertAct], 128 * 6 * 768 * 2);
  EXPECT_EQ(bytes[Tensor::kExpertOut], 128 * 6 * 2048 * 2);
  EXPECT_EQ(PaddingNote(QwenModel(), step),
            "padded to 6 rows an expert, as routing is on the device: 16 times the flop of its "
            "pairs at even routing; all 128 local experts' weights are read, whether routed to or "
            "not");
  EXPECT_EQ(PaddingNote(QwenModel(), StepOf(QwenModel(), Plan{}, Decode(6, 1))), "");
}

TEST(MakeStepTest, PadsARanksExpertsToTheTokensThatMayReachThem) {
  Plan plan;
  plan.moe.kernel = MoeKernel::kCublaslt;
  plan.parallel.tensor = 4;
  plan.parallel.expert = 4;
  const auto down = ShapeOf<ExpertGemmShape>(StepOf(QwenModel(), plan, Decode(6, 1)), "moe.down");
  EXPECT_EQ(down.num_local_experts, 32);
  EXPECT_EQ(down.padded_rows, 6);
  // Under data attention those of all ranks: every one may choose the same expert.
  plan.parallel.attention = AttentionParallel::kData;
  const Step step = StepOf(QwenModel(), plan, Decode(6, 1));
  EXPECT_EQ(step.num_tokens, 2);
  EXPECT_EQ(ShapeOf<PadShape>(step, "moe.pad").padded_rows, 6);
  EXPECT_EQ(Find(step, "moe.pad").in, Tensor::kExpertInput);
  EXPECT_EQ(Find(step, "moe.combine").out, Tensor::kExpertSum);
}

TEST(MakeStepTest, FusedExpertsReadTheWeightsOfTheGroupedOnes) {
  Plan fused;
  fused.moe.kernel = MoeKernel::kFused;
  const StepOptions options{.layers_kept = 0, .load = {.pairs = 8, .unique_experts = 8}};
  const Step grouped = StepOf(KimiModel(), Plan{}, Decode(1, 1), 0, options);
  const Step step = StepOf(KimiModel(), fused, Decode(1, 1), 0, options);
  EXPECT_FALSE(Has(step, "moe.gate_up"));
  EXPECT_DOUBLE_EQ(
      Find(step, "moe.fused").work.weight_bytes,
      Find(grouped, "moe.gate_up").work.weight_bytes + Find(grouped, "moe.down").work.weight_bytes);
}

TEST(MakeStepTest, AnAllReduceSendsTheLeastThatAnyAlgorithmMust) {
  Plan plan;
  plan.parallel.tensor = 8;
  const Step step = StepOf(KimiModel(), plan, Decode(1, 1));
  // 14,336 B of bf16 over 8 ranks: reduce-scatter and all-gather, 2 * 7/8.
  EXPECT_DOUBLE_EQ(Find(step, "all_reduce.attention").work.link_bytes, 2.0 * 14336 * 7 / 8);
}

TEST(MakeStepTest, SpeculationVerifiesDraftsAndTheLastToken) {
  Plan plan;
  plan.speculative = {.draft_tokens = 4, .acceptance = 0.8, .draft_cost = 0};
  const Step step = StepOf(QwenModel(), plan, Decode(2, 100));
  EXPECT_EQ(step.num_tokens, 10);
  EXPECT_EQ(ShapeOf<AttentionShape>(step, "attention.attend").query_tokens, 5);
  EXPECT_EQ(ShapeOf<GemmShape>(step, "lm_head").num_tokens, 10);
  EXPECT_NEAR(step.tokens_per_step, 2 * 3.3616, 1e-9);
}

TEST(MakeStepTest, CountsTheTokensOfAStep) {
  Plan plan;
  EXPECT_DOUBLE_EQ(TokensPerStep(plan, Decode(3, 1)), 3);
  plan.speculative.draft_tokens = 4;
  for (const auto& [acceptance, tokens] : {std::pair{0.8, 3.3616}, {0.0, 1.0}, {1.0, 5.0}}) {
    plan.speculative.acceptance = acceptance;
    EXPECT_NEAR(TokensPerStep(plan, Decode(1, 1)), tokens, 1e-12);
  }
  plan.speculative.acceptance = 0.8;
  EXPECT_NEAR(TokensPerStep(plan, Decode(1, 1)) - 1, 2.3616, 1e-12) << "accepted drafts";
  Point prefill = Decode(2, 512);
  prefill.phase = Phase::kPrefill;
  EXPECT_DOUBLE_EQ(TokensPerStep(plan, prefill), 1024);
}

TEST(MakeStepTest, PrefillGivesLogitsToTheLastTokenOfAPromptOnly) {
  Point point = Decode(2, 512);
  point.phase = Phase::kPrefill;
  const Step step = StepOf(QwenModel(), Plan{}, point);
  EXPECT_EQ(step.num_tokens, 1024);
  const auto head = ShapeOf<GemmShape>(step, "lm_head");
  EXPECT_EQ(head.num_tokens, 2);
  EXPECT_EQ(head.in_stride, 512 * 2048);
  EXPECT_EQ(head.in_offset, 511 * 2048);
  // Causal: token i sees i + 1 tokens, 512 * 513 / 2 in all.
  EXPECT_DOUBLE_EQ(Find(step, "attention.attend").work.flop,
                   2.0 * 2 * (512.0 * 513 / 2) * 32 * (128 + 128));
}

TEST(MakeStepTest, KeepsTheFirstMoeLayersAndOneDenseOne) {
  Model model = KimiModel();
  model.layer_kinds[1] = LayerKind::kDense;
  model.layer_kinds[2] = LayerKind::kDense;
  const StepOptions options{.layers_kept = 2, .load = {}};
  const Step step = StepOf(model, Plan{}, Decode(1, 1), 0, options);
  EXPECT_THAT(step.layers, ElementsAre(0, 3, 4));
  EXPECT_DOUBLE_EQ(step.moe_layer_scale, 29);
  EXPECT_DOUBLE_EQ(step.dense_layer_scale, 3);
  const Step all = StepOf(model, Plan{}, Decode(1, 1));
  EXPECT_EQ(all.layers.size(), 61U);
  EXPECT_DOUBLE_EQ(all.dense_layer_scale, 1);
}

TEST(MakeStepTest, BuildsLayersThatAreAlikeOnce) {
  Model model = KimiModel();
  model.layer_kinds[1] = LayerKind::kDense;
  model.layer_kinds[2] = LayerKind::kDense;
  const StepOptions options{.distinct_layers_only = true,
                            .load = {.pairs = 8, .unique_experts = 7}};
  const Step distinct = StepOf(model, Plan{}, Decode(4, 100), 0, options);
  const Step all = StepOf(model, Plan{}, Decode(4, 100), 0, {.load = options.load});
  EXPECT_EQ(distinct.layers, all.layers);
  std::map<int, int64_t> layers;
  for (const Op& op : distinct.ops) {
    layers[op.layer] = op.num_layers;
  }
  // The first has no residual to add to.
  EXPECT_THAT(layers, ElementsAre(Pair(-1, 1), Pair(0, 1), Pair(1, 2), Pair(3, 58)));
  // Together they are the ops of all layers, and each is as it is among those.
  std::map<std::string, int64_t> num_left;
  for (const Op& op : all.ops) {
    ++num_left[op.name];
  }
  for (const Op& op : distinct.ops) {
    num_left[op.name] -= op.num_layers;
    for (const Op& other : all.ops) {
      if (other.name == op.name && other.layer >= op.layer && op.layer != 0 &&
          (op.layer != 1 || other.layer < 3)) {
        EXPECT_EQ(other.shape, op.shape) << op.name << " in layer " << other.layer;
        EXPECT_EQ(other.work.bytes(), op.work.bytes()) << op.name;
      }
    }
  }
  for (const auto& [name, left] : num_left) {
    EXPECT_EQ(left, 0) << name;
  }
}

TEST(MakeStepTest, PipelineStagesHaveLayersOfTheirOwnAndHandOver) {
  Plan plan;
  plan.parallel.tensor = 4;
  plan.parallel.pipeline = 2;
  plan.parallel.micro_batches = 2;
  const Step first = StepOf(KimiModel(), plan, Decode(6, 100), 0);
  const Step second = StepOf(KimiModel(), plan, Decode(6, 100), 4);
  EXPECT_EQ(first.layers.size(), 30U);
  EXPECT_EQ(second.layers.front(), 30);
  EXPECT_EQ(second.layers.size(), 31U);
  EXPECT_EQ(first.num_tokens, 3);
  EXPECT_EQ(first.micro_batches, 2);
  EXPECT_EQ(first.ops.back().name, "pipeline.send");
  EXPECT_EQ(second.ops.front().name, "pipeline.receive");
  // The next step of a micro-batch begins with its tokens: 3 of 4 bytes.
  EXPECT_EQ(first.ops.front().name, "pipeline.receive_tokens");
  EXPECT_EQ(second.ops.back().name, "pipeline.send_tokens");
  EXPECT_DOUBLE_EQ(second.ops.back().work.link_bytes, 3.0 * 4);
  EXPECT_DOUBLE_EQ(first.ops.back().work.link_bytes, 2.0 * 3 * 7168 * 2);
  EXPECT_FALSE(Has(first, "lm_head"));
}

TEST(MakeStepTest, VocabularySlicesCoverEveryTokenOnce) {
  Model model = QwenModel();
  model.vocab_size = 151937;
  Plan plan;
  plan.parallel.tensor = 4;
  int64_t next = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Step step = StepOf(model, plan, Decode(1, 1), rank);
    const auto embedding = ShapeOf<EmbeddingShape>(step, "embedding");
    EXPECT_EQ(embedding.vocab_begin, next);
    next += embedding.vocab_rows;
    EXPECT_EQ(ShapeOf<GemmShape>(step, "lm_head").out_features, embedding.vocab_rows);
  }
  EXPECT_EQ(next, 151937);
}

TEST(MakeStepTest, RefusesAnInfeasiblePlanWithItsArithmetic) {
  Plan plan;
  plan.parallel.expert = 5;
  const auto step = MakeStep(KimiModel(), plan, Decode(1, 1), 0, {});
  EXPECT_EQ(step.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(step.status().message()), HasSubstr("384 mod 5 = 4"));
}

}  // namespace
}  // namespace lastflop
