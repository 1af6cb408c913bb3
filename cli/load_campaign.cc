#include "cli/load_campaign.h"

#include <filesystem>
#include <string>
#include <vector>

#include "common/share_path.h"
#include "common/status_macros.h"
#include "planner/surroundings.h"
#include "spec/campaign_reader.h"
#include "spec/model_reader.h"
#include "spec/text_file.h"
#include "step/make_step.h"

namespace lastflop {
namespace {

// The ops that a claim of op:NAME may name: of rank 0 at the first point.
absl::StatusOr<std::vector<std::string>> OpNames(const Campaign& campaign, const Plan& plan) {
  StepOptions options;
  options.layers_kept = campaign.layers_kept;
  LASTFLOP_ASSIGN_OR_RETURN(const Step step, MakeStep(campaign.model, plan, campaign.points.front(),
                                                      /*rank=*/0, options));
  std::vector<std::string> names;
  for (const Op& op : step.ops) {
    names.push_back(op.name);
  }
  return names;
}

// Against a machine file: what `auto` will have is known to the workers alone, and they check it.
absl::Status CheckFits(const Campaign& campaign, const Plan& plan, const Point& point,
                       LayersLoaded layers) {
  const Machine& machine = campaign.machine;
  if (campaign.machine_auto || machine.memory_bytes <= 0) {
    return absl::OkStatus();
  }
  // A device each, or one host for all ranks.
  const int64_t num_sharing = machine.backend == "cpu" ? plan.num_ranks() : 1;
  const int64_t layers_kept = layers == LayersLoaded::kAll ? 0 : campaign.layers_kept;
  return CheckMemory(campaign.model, plan, point, layers_kept,
                     kUsableMemoryShare * static_cast<double>(machine.memory_bytes) /
                         static_cast<double>(num_sharing));
}

CampaignHooks MakeHooks(LayersLoaded layers) {
  CampaignHooks hooks;
  hooks.read_model = [](const std::string& path) { return ReadModelFile(path); };
  hooks.check_plan = [](const Campaign& campaign, const Plan& plan) {
    return CheckFeasible(campaign.model, plan);
  };
  hooks.check_point = [layers](const Campaign& campaign, const Plan& plan, const Point& point) {
    LASTFLOP_RETURN_IF_ERROR(CheckPoint(campaign.model, plan, point));
    return CheckFits(campaign, plan, point, layers);
  };
  hooks.op_names = OpNames;
  if (const absl::StatusOr<std::string> share = SharePath("experiments/machines"); share.ok()) {
    hooks.machines_directory = *share;
  }
  return hooks;
}

}  // namespace

absl::Status CheckFidelity(const Campaign& campaign, absl::string_view backend) {
  if (campaign.fidelity == Fidelity::kShard && backend == "cpu") {
    return absl::InvalidArgumentError(
        "fidelity shard: measures one rank of a GPU machine and models the others; on a CPU every "
        "rank runs, use full");
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadedCampaign> LoadCampaign(const CampaignFlags& flags, LayersLoaded layers) {
  // Read once: it may be a pipe.
  LASTFLOP_ASSIGN_OR_RETURN(std::string source, ReadTextFile(flags.file, kMaxCampaignBytes));
  std::vector<std::string> overrides = flags.overrides;
  if (flags.no_prune) {
    overrides.push_back("measure.prune=false");
  }
  LASTFLOP_ASSIGN_OR_RETURN(
      Campaign campaign,
      ReadCampaign(source, flags.file, std::filesystem::path(flags.file).parent_path().string(),
                   overrides, MakeHooks(layers)));
  if (layers == LayersLoaded::kAll) {
    campaign.layers_kept = 0;
  }
  if (!flags.fidelity.empty()) {
    campaign.fidelity = FromWord<Fidelity>(flags.fidelity);
  }
  if (!campaign.machine_auto) {
    LASTFLOP_RETURN_IF_ERROR(CheckFidelity(campaign, campaign.machine.backend));
    if (std::string warning = MissingBandwidthWarning(campaign.machine); !warning.empty()) {
      campaign.warnings.push_back(std::move(warning));
    }
  }
  return LoadedCampaign{.campaign = std::move(campaign), .source_yaml = std::move(source)};
}

}  // namespace lastflop
