#include "common/kernel_bench.h"

#include <algorithm>

#include "common/json_archive.h"
#include "common/json_members.h"

namespace lastflop {

template <typename Archive, Is<KernelBenchRequest> Value>
void Members(Archive& archive, Value& value) {
  archive("model", value.model);
  archive("tensor", value.tensor);
  archive("expert", value.expert);
  archive("most_loaded", value.most_loaded);
  archive("weights", value.weights);
  archive("batches", value.batches);
  archive("routing", value.routing);
  archive("samples", value.samples);
  archive("device", value.device);
}

template <typename Archive, Is<KernelBenchRow> Value>
void Members(Archive& archive, Value& value) {
  archive("kernel", value.kernel);
  archive("batch", value.batch);
  archive("us", value.us);
  archive("unique_experts", value.unique_experts);
  archive("pairs", value.pairs);
  archive("floor_us", value.floor_us);
  archive("read_share", value.read_share);
  archive("noise", value.noise);
  archive("error", value.error);
  archive("ops", value.ops);
  archive("environment", value.environment);
  archive("config", value.config);
  archive("reason", value.reason);
}

template <typename Archive, Is<KernelBenchResult> Value>
void Members(Archive& archive, Value& value) {
  archive("model", value.model);
  archive("tensor", value.tensor);
  archive("expert", value.expert);
  archive("rank", value.rank);
  archive("weights", value.weights);
  archive("routing", value.routing);
  archive("environment", value.environment);
  archive("cold_read", value.cold_read);
  archive("peak_bf16_tflop_per_s", value.peak_bf16_tflop_per_s);
  archive("rows", value.rows);
}

Plan PlanOf(const KernelBenchRequest& request) {
  Plan plan;
  plan.parallel.tensor = std::max(request.tensor, request.expert);
  plan.parallel.expert = request.expert;
  plan.moe.weights = request.weights;
  return plan;
}

std::string ToJson(const KernelBenchRequest& request) { return JsonWriter::Write(request).dump(); }

absl::StatusOr<KernelBenchRequest> KernelBenchRequestFromJson(absl::string_view text) {
  return ParseJson<KernelBenchRequest>(text, "kernel bench");
}

std::string ToJson(const KernelBenchResult& result) { return JsonWriter::Write(result).dump(2); }

absl::StatusOr<KernelBenchResult> KernelBenchResultFromJson(absl::string_view text) {
  return ParseJson<KernelBenchResult>(text, "kernel bench result");
}

}  // namespace lastflop
