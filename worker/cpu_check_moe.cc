#include <cmath>
#include <limits>
#include <utility>

#include "common/plan.h"  // Before dequant.h, whose function has the name of an enum in it.
#include "common/status_macros.h"
#include "kernels/dequant/dequant.h"
#include "kernels/fused_moe/fused_moe.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/moe_combine/moe_combine.h"
#include "kernels/router/router.h"
#include "kernels/swiglu/swiglu.h"
#include "worker/cpu_op_checker_inl.h"
#include "worker/cpu_plugin.h"
#include "worker/plugin_support.h"

namespace lastflop {
namespace {

// Equal or not: discrete results have no tolerance.
template <typename A, typename B>
OpCheck CheckEqual(const A& out, const B& reference, const char* what) {
  const bool equal = std::equal(out.begin(), out.end(), reference.begin(), reference.end());
  return {
      .error = equal ? 0 : std::numeric_limits<double>::infinity(), .tolerance = 0, .what = what};
}

// Router weights go through exp() of two implementations.
constexpr double kRouterWeightTolerance = 1e-5;

}  // namespace

CpuOpChecker::Result CpuOpChecker::operator()(const RouterShape& s) {
  const auto layer = static_cast<size_t>(cpu_op_.moe_index);
  CpuRouting& routing = step_.routing[layer];
  std::fill(routing.expert_ids.begin(), routing.expert_ids.end(), -2);
  std::fill(routing.weights.begin(), routing.weights.end(), NAN);
  LASTFLOP_RETURN_IF_ERROR(Run());
  // Opportunistic choice looks at the whole batch; else some tokens stand for it.
  const bool whole = s.opportunistic_keep > 0;
  const std::vector<int64_t> rows =
      SampleIndices(s.num_tokens, whole ? s.num_tokens : 4 * kMostRows, seed_);
  RouterShape sampled = s;
  sampled.num_tokens = static_cast<int64_t>(rows.size());
  const auto scores =
      GatherRows(std::span(step_.drawn_scores[layer]), rows, s.num_experts, s.num_experts);
  std::vector<int32_t> ids(rows.size() * static_cast<size_t>(s.top_k));
  std::vector<float> weights(ids.size());
  RouterReference(sampled, scores, step_.router_bias, ids, weights);
  OpCheck check = CheckEqual(GatherRows(std::span(routing.expert_ids), rows, s.top_k, s.top_k), ids,
                             "expert ids");
  OpCheck of_weights =
      Compare(std::span(routing.weights), rows, s.top_k, {}, weights, kRouterWeightTolerance);
  of_weights.what = "router weights";
  check.Add(of_weights);
  return check;
}

CpuOpChecker::Result CpuOpChecker::operator()(PermuteShape s) {
  s.num_tokens = step_.expert_tokens();
  const PairList pairs = step_.pair_list();
  std::fill(pairs.offsets.begin(), pairs.offsets.end(), -1);
  std::fill(pairs.pair_of.begin(), pairs.pair_of.end(), -2);
  LASTFLOP_RETURN_IF_ERROR(Run());
  const CpuRouting& routing = step_.routing[static_cast<size_t>(cpu_op_.moe_index)];
  const auto slots = static_cast<size_t>(s.num_tokens * s.top_k);
  const bool received = step_.layout.data_attention;
  PairBuffer buffer(s);
  const PairList reference = buffer.list();
  PermuteReference(s, std::span(received ? step_.received_ids : routing.expert_ids).first(slots),
                   std::span(received ? step_.received_weights : routing.weights).first(slots),
                   reference);
  OpCheck check = CheckEqual(pairs.offsets, reference.offsets, "offsets");
  if (check.ok()) {
    const auto num_pairs = static_cast<size_t>(pairs.num_pairs());
    check.Add(CheckEqual(pairs.token.first(num_pairs), reference.token.first(num_pairs),
                         "tokens of pairs"));
    check.Add(CheckEqual(pairs.weight.first(num_pairs), reference.weight.first(num_pairs),
                         "weights of pairs"));
    check.Add(CheckEqual(pairs.pair_of, reference.pair_of, "pairs of tokens"));
  }
  return check;
}

CheckedPairs CpuOpChecker::PairsOf(const PairList& pairs, std::span<const int64_t> sampled) const {
  CheckedPairs result;
  size_t next = 0;
  result.offsets.push_back(0);
  for (size_t expert = 0; expert + 1 < pairs.offsets.size(); ++expert) {
    while (next < sampled.size() && sampled[next] < pairs.offsets[expert + 1]) {
      const auto pair = static_cast<size_t>(sampled[next++]);
      result.token.push_back(pairs.token[pair]);
      result.weight.push_back(pairs.weight[pair]);
    }
    result.offsets.push_back(static_cast<int32_t>(next));
  }
  return result;
}

// The mirror of a device's padded rows has the pairs one after the other.
CpuOpChecker::Result CpuOpChecker::operator()(const PadShape& s) {
  const PairList pairs = step_.pair_list();
  const std::vector<int64_t> rows = SampleIndices(pairs.num_pairs(), 2 * kMostRows, seed_);
  const auto out = Out<Bf16>(pairs.num_pairs() * s.hidden_size);
  Poison(out, rows, s.hidden_size);
  LASTFLOP_RETURN_IF_ERROR(Run());
  std::vector<int64_t> tokens;
  for (const int64_t row : rows) {
    tokens.push_back(pairs.token[static_cast<size_t>(row)]);
  }
  return CheckEqual(GatherRows(out, rows, s.hidden_size, s.hidden_size),
                    GatherRows(In<Bf16>(step_.expert_tokens() * s.hidden_size), tokens,
                               s.hidden_size, s.hidden_size),
                    "rows of pairs");
}

CpuOpChecker::Result CpuOpChecker::operator()(ExpertGemmShape s) {
  const PairList pairs = step_.pair_list();
  const int64_t num_pairs = pairs.num_pairs();
  const std::vector<int64_t> rows = SampleIndices(num_pairs, 2 * kMostRows, seed_);
  if (rows.empty()) {
    LASTFLOP_RETURN_IF_ERROR(Run());
    return OpCheck{};
  }
  s.num_tokens = step_.expert_tokens();
  const int64_t num_products = s.swiglu ? 2 : 1;  // Of a column of `out`.
  const int64_t column_flop = static_cast<int64_t>(rows.size()) * s.in_features * num_products;
  const std::vector<int64_t> columns =
      SampleIndices(s.out_columns(), std::max<int64_t>(8, kReferenceFlop / column_flop), seed_);
  const auto out = Out<Bf16>(num_pairs * s.out_columns());
  Poison(out, rows, s.out_columns());
  LASTFLOP_RETURN_IF_ERROR(Run());
  CheckedPairs sampled = PairsOf(pairs, rows);
  const auto all_in = In<Bf16>((s.gather_tokens ? s.num_tokens : num_pairs) * s.in_features);
  // `down` reads its rows by pair, so the sampled ones move together.
  const std::vector<Bf16> moved = s.gather_tokens
                                      ? std::vector<Bf16>{}
                                      : GatherRows(all_in, rows, s.in_features, s.in_features);
  std::vector<float> reference(rows.size() * columns.size());
  GroupedGemmReference(
      s, sampled.list(),
      [this](int64_t matrix, int64_t row, std::span<float> values) {
        // Copies are checked with their own op; other weights by their true values.
        if (cpu_op_.dequantized.has_value()) {
          cpu_op_.ExpertRow(matrix, row, values);
        } else {
          cpu_op_.weights->ReferenceRow(matrix, row, values);
        }
      },
      s.gather_tokens ? std::span<const Bf16>(all_in) : std::span<const Bf16>(moved), columns,
      reference);
  return Compare(out, rows, s.out_columns(), columns, reference,
                 WorstTolerance(static_cast<int>(num_products), s.in_features));
}

CpuOpChecker::Result CpuOpChecker::operator()(const ActivationShape& s) {
  const PairList pairs = s.rows_are_pairs ? step_.pair_list() : PairList{};
  const int64_t num_rows = s.rows_are_pairs ? pairs.num_pairs() : s.rows;
  const std::vector<int64_t> rows = SampleIndices(num_rows, 2 * kMostRows, seed_);
  const auto out = Out<Bf16>(num_rows * s.intermediate_size);
  Poison(out, rows, s.intermediate_size);
  LASTFLOP_RETURN_IF_ERROR(Run());
  const auto in = GatherRows(In<Bf16>(2 * num_rows * s.intermediate_size), rows,
                             2 * s.intermediate_size, 2 * s.intermediate_size);
  const ActivationShape sampled{.rows = static_cast<int64_t>(rows.size()),
                                .intermediate_size = s.intermediate_size,
                                .rows_are_pairs = false};
  std::vector<float> reference(rows.size() * static_cast<size_t>(s.intermediate_size));
  SwigluReference(sampled, nullptr, in, reference);
  return Compare(out, rows, s.intermediate_size, {}, reference, WorstTolerance(1, 1));
}

CpuOpChecker::Result CpuOpChecker::operator()(CombineShape s) {
  const int64_t num_tokens = step_.expert_tokens();
  const std::vector<int64_t> rows = SampleIndices(num_tokens, kMostRows, seed_);
  const auto out = Out<Bf16>(num_tokens * s.hidden_size);
  Poison(out, rows, s.hidden_size);
  LASTFLOP_RETURN_IF_ERROR(Run());
  // The sampled tokens' pairs, numbered anew.
  const PairList pairs = step_.pair_list();
  CheckedPairs sampled;
  std::vector<int64_t> pair_rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t k = 0; k < s.top_k; ++k) {
      const int32_t pair = pairs.pair_of[static_cast<size_t>(rows[i] * s.top_k + k)];
      sampled.pair_of.push_back(pair < 0 ? -1 : static_cast<int32_t>(pair_rows.size()));
      if (pair >= 0) {
        sampled.token.push_back(static_cast<int32_t>(i));
        sampled.weight.push_back(pairs.weight[static_cast<size_t>(pair)]);
        pair_rows.push_back(pair);
      }
    }
  }
  sampled.offsets = {0, static_cast<int32_t>(pair_rows.size())};
  const auto in = GatherRows(In<Bf16>(pairs.num_pairs() * s.hidden_size), pair_rows, s.hidden_size,
                             s.hidden_size);
  std::vector<Bf16> shared;
  if (s.add_shared) {
    shared = GatherRows(step_.As<Bf16>(Tensor::kSharedOut, num_tokens * s.hidden_size), rows,
                        s.hidden_size, s.hidden_size);
  }
  s.num_tokens = static_cast<int64_t>(rows.size());
  std::vector<float> reference(rows.size() * static_cast<size_t>(s.hidden_size));
  MoeCombineReference(s, sampled.list(), in, shared, reference);
  return Compare(out, rows, s.hidden_size, {}, reference, WorstTolerance(1, s.top_k + 1));
}

PermuteShape CpuOpChecker::PermuteShapeOf(const FusedMoeShape& s) const {
  return {.num_tokens = s.num_tokens,
          .top_k = s.top_k,
          .num_experts = step_.model.num_experts,
          .first_expert = step_.layout.first_expert,
          .num_local_experts = s.num_local_experts};
}

// Others' code: what it may only read must stay as it is, and so must what lies behind its output.
CpuOpChecker::Result CpuOpChecker::RunWatchingPlugin(int64_t count) {
  const auto in = In<Bf16>(count);
  const std::vector<Bf16> in_before(in.begin(), in.end());
  const CpuRouting routing_before = step_.routing[static_cast<size_t>(cpu_op_.moe_index)];
  GuardPlugin(step_, cpu_op_, count);
  LASTFLOP_RETURN_IF_ERROR(Run());
  const auto trespass = [](std::string what) {
    return OpCheck{
        .error = std::numeric_limits<double>::infinity(), .tolerance = 0, .what = std::move(what)};
  };
  if (const auto broken = BrokenGuard(step_, cpu_op_, count); broken.has_value()) {
    return trespass(*broken);
  }
  const CpuRouting& routing = step_.routing[static_cast<size_t>(cpu_op_.moe_index)];
  if (!std::equal(in.begin(), in.end(), in_before.begin(), in_before.end()) ||
      routing.expert_ids != routing_before.expert_ids ||
      routing.weights != routing_before.weights) {
    return trespass("it changed its inputs");
  }
  return OpCheck{};
}

CpuOpChecker::Result CpuOpChecker::operator()(FusedMoeShape s) {
  s.num_tokens = step_.expert_tokens();
  const int64_t token_flop = 3 * s.top_k * s.hidden_size * s.moe_intermediate_size;
  const std::vector<int64_t> rows = SampleIndices(
      s.num_tokens, std::clamp<int64_t>(4 * kReferenceFlop / token_flop, 1, kMostRows), seed_);
  const int64_t count = s.num_tokens * s.hidden_size;
  const auto out = Out<Bf16>(count);
  Poison(out, rows, s.hidden_size);
  if (IsPluginOp(op_)) {
    LASTFLOP_ASSIGN_OR_RETURN(const OpCheck trespass, RunWatchingPlugin(count));
    if (!trespass.ok()) {
      return trespass;
    }
  } else {
    LASTFLOP_RETURN_IF_ERROR(Run());
  }
  // The reference of one large token takes longer than all other checks of a layer together: a
  // layer in turn is compared in full, the others for what they left unwritten.
  const auto num_layers = static_cast<uint64_t>(step_.routing.size());
  const bool in_turn = seed_ % num_layers == static_cast<uint64_t>(cpu_op_.moe_index);
  if (rows.empty() || (token_flop > 4 * kReferenceFlop && !in_turn)) {
    OpCheck check{.error = 0, .tolerance = WorstTolerance(2, s.hidden_size), .what = ""};
    if (HasPoison(out, rows, s.hidden_size)) {
      check.error = std::numeric_limits<double>::infinity();
    }
    return check;
  }
  std::vector<float> reference(rows.size() * static_cast<size_t>(s.hidden_size));
  const auto shared = s.add_shared ? step_.As<Bf16>(Tensor::kSharedOut, count) : std::span<Bf16>{};
  PairBuffer of_plugin(PermuteShapeOf(s));
  if (IsPluginOp(op_)) {
    const auto slots = static_cast<size_t>(s.num_tokens * s.top_k);
    const CpuRouting& routing = step_.routing[static_cast<size_t>(cpu_op_.moe_index)];
    const bool received = step_.layout.data_attention;
    PermuteReference(PermuteShapeOf(s),
                     std::span(received ? step_.received_ids : routing.expert_ids).first(slots),
                     std::span(received ? step_.received_weights : routing.weights).first(slots),
                     of_plugin.list());
  }
  FusedMoeReference(
      s, IsPluginOp(op_) ? of_plugin.list() : step_.pair_list(),
      [&](int64_t matrix, int64_t row, std::span<float> values) {
        cpu_op_.ExpertRow(matrix, row, values);
      },
      [&](int64_t matrix, int64_t row, std::span<float> values) {
        cpu_op_.ExpertDownRow(matrix, row, values);
      },
      In<Bf16>(count), shared, rows, reference);
  return Compare(out, rows, s.hidden_size, {}, reference,
                 WorstTolerance(2, std::max(s.hidden_size, s.moe_intermediate_size)));
}

CpuOpChecker::Result CpuOpChecker::operator()(const DequantShape& s) {
  LASTFLOP_RETURN_IF_ERROR(Run());
  const PairList pairs = step_.pair_list();
  std::vector<int64_t> touched;
  for (int64_t expert = 0; expert < s.num_local_experts; ++expert) {
    if (pairs.offsets[static_cast<size_t>(expert)] <
        pairs.offsets[static_cast<size_t>(expert) + 1]) {
      touched.push_back(expert);
    }
  }
  OpCheck check;
  std::vector<float> out(static_cast<size_t>(s.in_features));
  std::vector<float> reference(out.size());
  for (const int64_t i : SampleIndices(static_cast<int64_t>(touched.size()), kMostRows, seed_)) {
    const int64_t expert = touched[static_cast<size_t>(i)];
    for (const int64_t row : SampleIndices(s.out_features, kMostRows, seed_)) {
      if (cpu_op_.read_copy != nullptr) {
        LASTFLOP_RETURN_IF_ERROR(cpu_op_.read_copy(expert, row, out));
      } else {
        UnpackRow({.layout = &*cpu_op_.dequantized, .data = cpu_op_.dequantized_data->data()},
                  expert, row, out);
      }
      DequantReference(
          s,
          [this](int64_t matrix, int64_t weight_row, std::span<float> values) {
            cpu_op_.weights->ReferenceRow(matrix, weight_row, values);
          },
          expert, row, reference);
      check.Add(CheckEqual(out, reference, "dequantized weights"));
    }
  }
  return check;
}

}  // namespace lastflop
