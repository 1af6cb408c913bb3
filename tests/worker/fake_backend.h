#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "worker/arm.h"

namespace lastflop {

// How a fake arm behaves; set by a test for each plan.
struct FakeArmScript {
  absl::Status prepare = absl::OkStatus();
  double us = 100;
  double noise = 0.01;  // Uniform, relative.
  absl::Status run = absl::OkStatus();
  bool check_ok = true;
  bool check_after_ok = true;
  std::vector<float> output = {1.0f, 2.0f};
  std::vector<int32_t> experts = {0, 1, 2, 3};
  double least_possible_us = 0;
  double tokens_per_step = 1;
  double moe_us = 60;  // Of its breakdown.
};

class FakeArm : public Arm {
 public:
  FakeArm(FakeArmScript script, Plan plan, int* num_runs)
      : script_(std::move(script)), plan_(std::move(plan)), num_runs_(num_runs) {}

  absl::Status SetDraw(int64_t draw) override {
    draw_ = draw;
    return absl::OkStatus();
  }
  absl::StatusOr<StepTiming> Run() override {
    ++*num_runs_;
    if (!script_.run.ok()) {
      return script_.run;
    }
    const float u = CounterUniform(7, 1, static_cast<uint64_t>(draw_ + *num_runs_));
    return StepTiming{.us = script_.us * (1 + script_.noise * (u - 0.5))};
  }
  absl::StatusOr<CheckResult> Check(int64_t /*draw*/) override {
    const bool ok = num_checks_++ == 0 ? script_.check_ok : script_.check_after_ok;
    return CheckResult{.ok = ok, .detail = ok ? "" : "op moe.down, layer 0: max error 3.1"};
  }
  absl::StatusOr<std::vector<float>> Output() override { return script_.output; }
  absl::StatusOr<std::vector<int32_t>> ChosenExperts() override { return script_.experts; }
  absl::StatusOr<Breakdown> MeasureBreakdown(int /*num_samples*/) override {
    return Breakdown{
        .entries = {{.category = OpCategory::kMoe, .op = "moe.down", .us = script_.moe_us}},
        .step_us = 100,
        .method = "fake"};
  }
  Plan effective_plan() const override { return plan_; }
  std::string effective_note() const override { return "fake"; }
  double tokens_per_step() const override { return script_.tokens_per_step; }
  double unique_experts() const override { return 8; }
  ExpertLoad load() const override { return {}; }
  double imbalance() const override { return 1; }
  double capture_us() const override { return 0; }
  double least_possible_us() const override { return script_.least_possible_us; }

 private:
  const FakeArmScript script_;
  const Plan plan_;
  int* num_runs_;
  int64_t draw_ = 0;
  int num_checks_ = 0;
};

// Runs no kernel: arms answer from a script chosen by their plan.
class FakeBackend : public Backend {
 public:
  std::function<FakeArmScript(const Plan&)> script = [](const Plan&) { return FakeArmScript{}; };
  int num_runs = 0;

  absl::StatusOr<std::unique_ptr<Arm>> Prepare(const Plan& plan, const Point& /*point*/,
                                               Gang& /*gang*/) override {
    FakeArmScript of_plan = script(plan);
    if (!of_plan.prepare.ok()) {
      return of_plan.prepare;
    }
    return std::make_unique<FakeArm>(std::move(of_plan), plan, &num_runs);
  }
  std::map<std::string, std::string> Environment() override {
    return {{"backend", "fake"}, {"runs", std::to_string(num_runs)}};
  }
  std::string DataChecksum() override { return "0123456789abcdef"; }
};

}  // namespace lastflop
