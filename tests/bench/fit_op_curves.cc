// Fits the curves of planner/cost/op_curves.cc to the ops of the committed campaigns, and says how
// far they are off. docs/accuracy.md, "Whole steps, against our own cold runs".
//
//   fit_op_curves          the lines of MakeH200Curves, fitted from the ones compiled in
//   fit_op_curves --table  Markdown tables of the ones compiled in against the campaigns

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "planner/cost/least_squares.h"
#include "planner/cost/predict_step.h"
#include "tests/planner/cost/committed_results.h"
#include "tests/planner/cost/test_machine.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

constexpr const char* kResults[] = {
    "h200/kimi-k2.5-int4-decode.json", "h200/qwen3-30b-a3b-bf16-decode.json",
    "h200x2/qwen3-30b-a3b-bf16-decode-tp2.json", "h200x2/kimi-k2.5-int4-decode-tp2.json"};
constexpr double kPriorDeviation = 0.5;  // Of log parameters and of exponents.
constexpr double kLeastScatter = 0.05;
constexpr const char* kFamilies[kNumOpFamilies] = {
    "kEmbedding", "kRowNorm",        "kPartNorm",       "kGemm",         "kFp32Gemm",
    "kHeadGemm",  "kRope",           "kMlaAttention",   "kGqaAttention", "kTopK",
    "kPermute",   "kExpertGemmBf16", "kExpertGemmInt4", "kFusedMoe",     "kDequant",
    "kSwiglu",    "kCombine",        "kNcclAllReduce",  "kSampling",     "kTransfer"};

// One campaign with a predictor that reads `curves` anew at each prediction.
class Campaign {
 public:
  static absl::StatusOr<std::unique_ptr<Campaign>> Read(const char* name, const OpCurves& curves) {
    LASTFLOP_ASSIGN_OR_RETURN(CommittedResult result, ReadCommittedResult(name));
    auto campaign = std::unique_ptr<Campaign>(new Campaign(std::move(result)));
    LASTFLOP_ASSIGN_OR_RETURN(StepPredictor predictor,
                              StepPredictor::Create(campaign->model_, campaign->machine_, curves));
    campaign->predictor_ = std::make_unique<StepPredictor>(std::move(predictor));
    return campaign;
  }

  const CommittedResult& result() const { return result_; }
  int64_t ranks() const { return result_.baseline.num_ranks(); }

  // Plans and points are those of a campaign that ran: a failure is a bug of this program.
  StepPrediction Predict(const Plan& plan, const Point& point) {
    auto prediction = predictor_->Predict(plan, point, {.with_ops = true, .with_notes = false});
    if (!prediction.ok()) {
      std::cerr << prediction.status() << "\n";
      std::exit(1);
    }
    return *std::move(prediction);
  }

 private:
  explicit Campaign(CommittedResult result)
      : result_(std::move(result)),
        model_(result_.model == "kimi-k2.5" ? KimiModel() : QwenModel()),
        machine_(H200x8()) {}

  CommittedResult result_;
  Model model_;
  Machine machine_;
  std::unique_ptr<StepPredictor> predictor_;
};

using Campaigns = std::vector<std::unique_ptr<Campaign>>;

// log(predicted / measured) of the family's ops at every point.
std::vector<double> Errors(const Campaigns& campaigns, OpFamily family) {
  std::vector<double> errors;
  for (const auto& campaign : campaigns) {
    if (family == OpFamily::kNcclAllReduce && campaign->ranks() != 2) {
      continue;  // Modelled in the shards.
    }
    for (const CommittedPoint& point : campaign->result().points) {
      for (const PredictedOp& op :
           campaign->Predict(campaign->result().baseline, point.point).ops) {
        const auto measured = point.us_of_op.find(op.op);
        if (op.family == family && measured != point.us_of_op.end()) {
          errors.push_back(std::log(op.time.us / measured->second));
        }
      }
    }
  }
  return errors;
}

// The parameters of a curve as a fit has them: logs, and exponents as they are.
std::vector<double> ToParameters(const OpCurve& curve) {
  return {std::log(curve.latency_us), std::log(curve.byte_share),
          std::log(curve.flop_share), std::log(curve.activation_tb_per_s),
          curve.latency_exponent,     curve.batch_exponent};
}

void FromParameters(std::span<const double> parameters, OpCurve& curve) {
  curve.latency_us = std::exp(parameters[0]);
  curve.byte_share = std::min(1.0, std::exp(parameters[1]));
  curve.flop_share = std::exp(parameters[2]);
  curve.activation_tb_per_s = std::exp(parameters[3]);
  curve.latency_exponent = parameters[4];
  curve.batch_exponent = parameters[5];
}

void FitFamily(const Campaigns& campaigns, size_t index, OpCurves& curves) {
  OpCurve& curve = curves.of[index];
  const auto family = static_cast<OpFamily>(index);
  FitProblem problem;
  problem.prior_mean = ToParameters(curve);
  problem.prior_deviation.assign(problem.prior_mean.size(), kPriorDeviation);
  problem.num_rows = Errors(campaigns, family).size();
  if (problem.num_rows == 0) {
    return;
  }
  problem.residuals = [&](std::span<const double> parameters, std::span<double> residuals) {
    FromParameters(parameters, curve);
    const std::vector<double> errors = Errors(campaigns, family);
    std::copy(errors.begin(), errors.end(), residuals.begin());
  };
  FromParameters(FitLeastSquares(problem), curve);
  double sum = 0;
  for (const double error : Errors(campaigns, family)) {
    sum += error * error;
  }
  curve.scatter = std::max(kLeastScatter, std::sqrt(sum / static_cast<double>(problem.num_rows)));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// What no op claims of a step, in us.
double RestMicros(const CommittedPoint& point) {
  double ops = 0;
  for (const auto& [op, us] : point.us_of_op) {
    ops += op == "host" || op == "unclaimed" ? 0 : us;
  }
  return point.step_us - ops;
}

// The median over campaigns and points of what `gap` has to be for the measured speedup of the
// plan that differs from the baseline by a launch mode.
double FitGap(const Campaigns& campaigns, const std::string& id, double& gap) {
  std::vector<double> gaps;
  for (const auto& campaign : campaigns) {
    for (const CommittedIntervention& intervention : campaign->result().interventions) {
      for (size_t i = 0; intervention.id == id && i < intervention.plans.size(); ++i) {
        const CommittedPoint& point = campaign->result().points[i];
        gap = 0;
        const double without = campaign->Predict(intervention.plans[i], point.point).step.us;
        gap = 1;
        const double count =
            campaign->Predict(intervention.plans[i], point.point).step.us - without;
        gaps.push_back(point.step_us * (1 / intervention.speedups[i] - 1) / count);
      }
    }
  }
  return Median(std::move(gaps));
}

// Once a step, after a NCCL kernel, and without a whole graph.
void FitGaps(const Campaigns& campaigns, OpCurves& curves) {
  std::vector<double> rests;
  for (const auto& campaign : campaigns) {
    for (const CommittedPoint& point : campaign->result().points) {
      if (campaign->ranks() != 2) {
        rests.push_back(RestMicros(point));
      }
    }
  }
  curves.step_us = std::max(0.0, Median(rests));
  std::vector<double> nccl;
  for (const auto& campaign : campaigns) {
    for (const CommittedPoint& point : campaign->result().points) {
      if (campaign->ranks() == 2) {
        curves.gap_us_per_nccl = 0;
        const double without = campaign->Predict(campaign->result().baseline, point.point).step.us;
        curves.gap_us_per_nccl = 1;
        const double count =
            campaign->Predict(campaign->result().baseline, point.point).step.us - without;
        nccl.push_back((RestMicros(point) - curves.step_us) / count);
      }
    }
  }
  curves.gap_us_per_nccl = Median(nccl);
  curves.gap_us_per_op = FitGap(campaigns, "no-graph", curves.gap_us_per_op);
  curves.gap_us_per_layer = FitGap(campaigns, "piecewise-graphs", curves.gap_us_per_layer);
}

void PrintCurves(const OpCurves& curves) {
  std::printf("  curves.gap_us_per_op = %.3g;\n  curves.gap_us_per_layer = %.3g;\n",
              curves.gap_us_per_op, curves.gap_us_per_layer);
  std::printf("  curves.gap_us_per_nccl = %.3g;\n  curves.step_us = %.3g;\n",
              curves.gap_us_per_nccl, curves.step_us);
  for (size_t i = 0; i < kNumOpFamilies; ++i) {
    const OpCurve& c = curves.of[i];
    std::printf("  set(OpFamily::%s, {%.3g, %.3g, %.3g, %.3g, %.3g, %s, %.2g, %.2g, %.2g});\n",
                kFamilies[i], c.latency_us, c.byte_share, c.flop_share, c.activation_tb_per_s,
                c.power, c.latency_hides ? "true" : "false", c.latency_exponent, c.batch_exponent,
                c.scatter);
  }
}

void PrintBaselines(const Campaigns& campaigns) {
  std::printf(
      "| model | ranks | batch | context | measured us | predicted us | interval | error |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const auto& campaign : campaigns) {
    const CommittedResult& result = campaign->result();
    for (const CommittedPoint& point : result.points) {
      const TimeEstimate step = campaign->Predict(result.baseline, point.point).step;
      std::printf("| %s | %ld | %ld | %ld | %.0f | %.0f | %.0f to %.0f | %+.1f%% |\n",
                  result.model.c_str(), campaign->ranks(), point.point.batch, point.point.context,
                  point.step_us, step.us, step.low_us, step.high_us,
                  100 * (step.us / point.step_us - 1));
    }
  }
}

void PrintInterventions(const Campaigns& campaigns) {
  for (const auto& campaign : campaigns) {
    const CommittedResult& result = campaign->result();
    for (const CommittedIntervention& intervention : result.interventions) {
      std::printf("| %s tp%ld %s |", result.model.c_str(), campaign->ranks(),
                  intervention.id.c_str());
      for (size_t i = 0; i < result.points.size(); ++i) {
        const Point& point = result.points[i].point;
        const double predicted = campaign->Predict(intervention.plans[i], point).tokens_per_s /
                                 campaign->Predict(result.baseline, point).tokens_per_s;
        std::printf(" %.2f (%.2f) |", predicted, intervention.speedups[i]);
      }
      std::printf("\n");
    }
  }
}

// Op by op, for whom a row of the first table is far off.
void PrintOps(const Campaigns& campaigns) {
  for (const auto& campaign : campaigns) {
    const CommittedResult& result = campaign->result();
    for (const PredictedOp& op :
         campaign->Predict(result.baseline, result.points.front().point).ops) {
      std::printf("%s tp%ld %s (%s):", result.model.c_str(), campaign->ranks(), op.op.c_str(),
                  kFamilies[static_cast<size_t>(op.family)]);
      for (const CommittedPoint& point : result.points) {
        for (const PredictedOp& at : campaign->Predict(result.baseline, point.point).ops) {
          const auto measured = point.us_of_op.find(at.op);
          if (at.op == op.op && measured != point.us_of_op.end()) {
            std::printf(" %.0f (%.0f)", at.time.us, measured->second);
          }
        }
      }
      std::printf("\n");
    }
  }
}

absl::Status Run(bool table) {
  OpCurves curves = H200OpCurves();
  Campaigns campaigns;
  for (const char* name : kResults) {
    LASTFLOP_ASSIGN_OR_RETURN(auto campaign, Campaign::Read(name, curves));
    campaigns.push_back(std::move(campaign));
  }
  if (!table) {
    curves.gap_us_per_nccl = 0;  // Fitted last, and in no op's time.
    for (size_t i = 0; i < kNumOpFamilies; ++i) {
      FitFamily(campaigns, i, curves);
    }
    FitGaps(campaigns, curves);
    PrintCurves(curves);
    return absl::OkStatus();
  }
  PrintInterventions(campaigns);
  PrintOps(campaigns);
  PrintBaselines(campaigns);
  return absl::OkStatus();
}

}  // namespace
}  // namespace lastflop

int main(int argc, char** argv) {
  const bool table = argc == 2 && std::strcmp(argv[1], "--table") == 0;
  if (argc > 1 && !table) {
    std::fputs("usage: fit_op_curves [--table]\n", stderr);
    return 2;
  }
  if (const absl::Status status = lastflop::Run(table); !status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  return 0;
}
