// The files in experiments/, and the public cases about shapes, with the checks of step/.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/expand_trials.h"
#include "spec/campaign_reader.h"
#include "spec/machine_reader.h"
#include "spec/model_reader.h"
#include "step/make_step.h"

namespace lastflop {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ctest runs the tests in the root of the repository.
constexpr char kExperiments[] = "experiments";

CampaignHooks StepHooks() {
  CampaignHooks hooks;
  hooks.read_model = [](const std::string& path) { return ReadModelFile(path); };
  hooks.check_plan = [](const Campaign& campaign, const Plan& plan) {
    return CheckFeasible(campaign.model, plan);
  };
  hooks.check_point = [](const Campaign& campaign, const Plan& plan, const Point& point) {
    return CheckPoint(campaign.model, plan, point);
  };
  hooks.op_names = [](const Campaign& campaign,
                      const Plan& plan) -> absl::StatusOr<std::vector<std::string>> {
    const absl::StatusOr<Step> step =
        MakeStep(campaign.model, plan, campaign.points[0], 0, StepOptions{});
    if (!step.ok()) {
      return step.status();
    }
    std::vector<std::string> names;
    for (const Op& op : step->ops) {
      names.push_back(op.name);
    }
    return names;
  };
  return hooks;
}

std::vector<std::string> YamlFilesIn(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path().string());
    }
  }
  return files;
}

TEST(ExperimentsTest, EveryCampaignReadsAndEveryInterventionCanRunSomewhere) {
  const std::vector<std::string> files = YamlFilesIn(kExperiments);
  ASSERT_GE(files.size(), 2u);
  for (const std::string& file : files) {
    const absl::StatusOr<Campaign> campaign = ReadCampaignFile(file, {}, StepHooks());
    ASSERT_TRUE(campaign.ok()) << campaign.status();
    EXPECT_TRUE(ExpandTrials(*campaign).ok()) << file;
    for (const Intervention& intervention : campaign->interventions) {
      EXPECT_EQ(intervention.infeasible_reason, "") << file << ": " << intervention.id;
    }
  }
}

TEST(ExperimentsTest, EveryMachineReads) {
  const std::vector<std::string> files = YamlFilesIn(absl::StrCat(kExperiments, "/machines"));
  ASSERT_GE(files.size(), 2u);
  for (const std::string& file : files) {
    const absl::StatusOr<Machine> machine = ReadMachineFile(file);
    ASSERT_TRUE(machine.ok()) << machine.status();
    EXPECT_EQ(machine->name, std::filesystem::path(file).stem().string());
  }
}

TEST(ExperimentsTest, TheQuickstartIsWhatTheReadmeSays) {
  const absl::StatusOr<Campaign> campaign =
      ReadCampaignFile(absl::StrCat(kExperiments, "/quickstart.yaml"), {}, StepHooks());
  ASSERT_TRUE(campaign.ok()) << campaign.status();
  EXPECT_EQ(campaign->model.hidden_size, 2048);
  EXPECT_EQ(campaign->model.num_experts, 128);
  EXPECT_EQ(campaign->layers_kept, 2);
  EXPECT_EQ(campaign->baseline.num_ranks(), 2);
  EXPECT_EQ(campaign->points.size(), 3u);
  EXPECT_GE(campaign->interventions.size(), 7u);
  EXPECT_THAT(campaign->warnings, IsEmpty());
  EXPECT_TRUE(campaign->infeasible.empty());
}

// A campaign whose one intervention tries the values of a field on a model of experiments/models.
absl::StatusOr<Campaign> Sweep(const std::string& model, const std::string& baseline,
                               const std::string& field, const std::string& values) {
  const std::string text =
      absl::StrCat("schema: 1\nname: sweep\nmodel: models/", model, "\nbaseline: {", baseline,
                   "}\nworkload: {points: [{batch: 1000, context: 512}]}\n"
                   "interventions: [{id: sweep, effort: 1h, try: {",
                   field, ": [", values, "]}}]\n");
  return ReadCampaign(text, "sweep.yaml", kExperiments, {}, StepHooks());
}

// The values whose choices are infeasible, and every reason.
std::set<std::string> InfeasibleChoices(const Campaign& campaign,
                                        std::vector<std::string>& reasons) {
  std::set<std::string> choices;
  for (const Infeasible& cell : campaign.infeasible) {
    choices.insert(cell.choice.substr(cell.choice.find('=') + 1));
    reasons.push_back(cell.reason);
  }
  return choices;
}

TEST(ExperimentsTest, H1ExpertDegreesThatDoNotDivideAreInfeasibleAndTheOthersRun) {
  std::vector<std::string> reasons;
  // Sixteen ranks of sliced attention, so that every degree has room.
  const auto campaign = Sweep("kimi-k2.5.json", "parallel.tensor: 16, moe.weights: int4_g32",
                              "parallel.expert", "1, 2, 3, 5, 8, 16, 400");
  ASSERT_TRUE(campaign.ok()) << campaign.status();
  const std::set<std::string> choices = InfeasibleChoices(*campaign, reasons);
  // 3 divides 384 but not the 16 ranks, so it needs a deployment of its own.
  EXPECT_EQ(choices, (std::set<std::string>{"3", "5", "400"}));
  EXPECT_THAT(reasons, ::testing::Contains(HasSubstr("384 mod 5 = 4")));
  EXPECT_THAT(reasons, ::testing::Contains(HasSubstr("parallel.expert=400 > num_experts=384")));
  const auto three =
      Sweep("kimi-k2.5.json", "parallel: {tensor: 1, data: 3, expert: 3, attention: data}",
            "moe.tile_order", "row_major, column_major");
  EXPECT_TRUE(three.ok()) << three.status();
}

TEST(ExperimentsTest, H1TensorDegreesThatDoNotDivideAreInfeasibleWithTheArithmetic) {
  std::vector<std::string> reasons;
  const auto campaign = Sweep("kimi-k2.5.json", "", "parallel.tensor", "1, 3, 8");
  ASSERT_TRUE(campaign.ok()) << campaign.status();
  EXPECT_EQ(InfeasibleChoices(*campaign, reasons), (std::set<std::string>{"3"}));
  EXPECT_THAT(reasons, Each(HasSubstr("64 mod 3 = 1")));
  EXPECT_THAT(
      std::string(Sweep("kimi-k2.5.json", "parallel.tensor: 3", "moe.tile_order", "column_major")
                      .status()
                      .message()),
      AllOf(HasSubstr("sweep.yaml:4:"), HasSubstr("baseline.parallel.tensor: "),
            HasSubstr("64 mod 3 = 1")));
}

TEST(ExperimentsTest, H2QuantizationBlocksDivideEveryRanksShard) {
  std::vector<std::string> reasons;
  // 1536 wide experts in blocks of 128: 1536/4 = 384 passes, 1536/8 = 192 does not.
  const auto blocks =
      Sweep("qwen3-235b-a22b.json", "moe.weights: fp8_block", "parallel.tensor", "1, 4, 8");
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_EQ(InfeasibleChoices(*blocks, reasons), (std::set<std::string>{"8"}));
  EXPECT_THAT(reasons,
              Each(AllOf(HasSubstr("1536/8 = 192"), HasSubstr("128"), HasSubstr("remainder 64"))));
}

}  // namespace
}  // namespace lastflop
