#pragma once

#include "common/campaign.h"
#include "common/json_archive.h"
#include "common/machine.h"
#include "common/model.h"
#include "common/trial.h"

// The members of everything that is stored or sent as JSON (see json_archive.h). A new member of
// one of these structs is one line here.
namespace lastflop {

// ---- Model ----

template <typename Archive, Is<AttentionDims> Value>
void Members(Archive& archive, Value& value) {
  archive("kind", value.kind);
  archive("num_heads", value.num_heads);
  archive("num_kv_heads", value.num_kv_heads);
  archive("head_dim", value.head_dim);
  archive("rotary_dim", value.rotary_dim);
  archive("qk_norm", value.qk_norm);
  archive("bias", value.bias);
  archive("q_lora_rank", value.q_lora_rank);
  archive("kv_lora_rank", value.kv_lora_rank);
  archive("qk_nope_head_dim", value.qk_nope_head_dim);
  archive("qk_rope_head_dim", value.qk_rope_head_dim);
  archive("v_head_dim", value.v_head_dim);
}

template <typename Archive, Is<RouterDims> Value>
void Members(Archive& archive, Value& value) {
  archive("scoring", value.scoring);
  archive("has_bias", value.has_bias);
  archive("num_groups", value.num_groups);
  archive("top_k_groups", value.top_k_groups);
  archive("renormalize", value.renormalize);
  archive("softmax_after_top_k", value.softmax_after_top_k);
  archive("scaling_factor", value.scaling_factor);
}

template <typename Archive, Is<WeightStorage> Value>
void Members(Archive& archive, Value& value) {
  archive("format", value.format);
  archive("group_size", value.group_size);
  archive("block_rows", value.block_rows);
}

template <typename Archive, Is<Model> Value>
void Members(Archive& archive, Value& value) {
  archive("name", value.name);
  archive("architecture", value.architecture);
  archive("model_type", value.model_type);
  archive("hidden_size", value.hidden_size);
  archive("num_layers", value.num_layers);
  archive("layer_kinds", value.layer_kinds);
  archive("dense_intermediate_size", value.dense_intermediate_size);
  archive("num_experts", value.num_experts);
  archive("top_k", value.top_k);
  archive("moe_intermediate_size", value.moe_intermediate_size);
  archive("num_shared_experts", value.num_shared_experts);
  archive("shared_intermediate_size", value.shared_intermediate_size);
  archive("vocab_size", value.vocab_size);
  archive("tie_word_embeddings", value.tie_word_embeddings);
  archive("max_position_embeddings", value.max_position_embeddings);
  archive("rms_norm_epsilon", value.rms_norm_epsilon);
  archive("rope_theta", value.rope_theta);
  archive("attention", value.attention);
  archive("router", value.router);
  archive("experts", value.experts);
  archive("shared", value.shared);
  archive("dense", value.dense);
  archive("attention_weights", value.attention_weights);
  archive("lm_head", value.lm_head);
  archive("assumed", value.assumed);
  archive("not_modelled", value.not_modelled);
}

// ---- Machine ----

template <typename Archive, Is<ReadCurvePoint> Value>
void Members(Archive& archive, Value& value) {
  archive("bytes", value.bytes);
  archive("us", value.us);
}

template <typename Archive, Is<Machine> Value>
void Members(Archive& archive, Value& value) {
  archive("name", value.name);
  archive("backend", value.backend);
  archive("device_name", value.device_name);
  archive("architecture", value.architecture);
  archive("num_devices", value.num_devices);
  archive("num_cores", value.num_cores);
  archive("memory_bytes", value.memory_bytes);
  archive("l2_bytes", value.l2_bytes);
  archive("peak_bandwidth_gb_per_s", value.peak_bandwidth_gb_per_s);
  archive("peak_bf16_tflop_per_s", value.peak_bf16_tflop_per_s);
  archive("peak_fp8_tflop_per_s", value.peak_fp8_tflop_per_s);
  archive("peak_fp4_tflop_per_s", value.peak_fp4_tflop_per_s);
  archive("measured_bf16_tflop_per_s", value.measured_bf16_tflop_per_s);
  archive("link_gb_per_s", value.link_gb_per_s);
  archive("measured_link_gb_per_s", value.measured_link_gb_per_s);
  archive("collective_latency_us", value.collective_latency_us);
  archive("launch_gap_us", value.launch_gap_us);
  archive("link", value.link);
  archive("cold_read", value.cold_read);
  archive("source", value.source);
}

// ---- Campaign ----

template <typename Archive, Is<Routing> Value>
void Members(Archive& archive, Value& value) {
  archive("distribution", value.distribution);
  archive("exponent", value.exponent);
  archive("seed", value.seed);
  archive("trace_file", value.trace_file);
  archive("trace_popularity", value.trace_popularity);
}

template <typename Archive, Is<Point> Value>
void Members(Archive& archive, Value& value) {
  archive("phase", value.phase);
  archive("batch", value.batch);
  archive("context", value.context);
  archive("time_share", value.time_share);
  archive("routing", value.routing);
  archive("tag", value.tag);
}

template <typename Archive, Is<Effort> Value>
void Members(Archive& archive, Value& value) {
  archive("low_hours", value.low_hours);
  archive("likely_hours", value.likely_hours);
  archive("high_hours", value.high_hours);
}

template <typename Archive, Is<Claim> Value>
void Members(Archive& archive, Value& value) {
  archive("low", value.low);
  archive("high", value.high);
  archive("of", value.of);
  archive("batch_low", value.batch_low);
  archive("batch_high", value.batch_high);
  archive("source", value.source);
}

template <typename Archive, Is<Prior> Value>
void Members(Archive& archive, Value& value) {
  archive("result", value.result);
  archive("source", value.source);
}

template <typename Archive, Is<FieldSetting> Value>
void Members(Archive& archive, Value& value) {
  archive("path", value.path);
  archive("value", value.value);
}

template <typename Archive, Is<Intervention> Value>
void Members(Archive& archive, Value& value) {
  archive("id", value.id);
  archive("title", value.title);
  archive("tier", value.tier);
  archive("effort", value.effort);
  archive("risk", value.risk);
  archive("quality", value.quality);
  archive("switchable", value.switchable);
  archive("claim", value.claim);
  archive("prior", value.prior);
  archive("needs", value.needs);
  archive("excludes", value.excludes);
  archive("set", value.set);
  archive("try", value.try_values);
  archive("infeasible_reason", value.infeasible_reason);
}

template <typename Archive, Is<Infeasible> Value>
void Members(Archive& archive, Value& value) {
  archive("intervention_id", value.intervention_id);
  archive("choice", value.choice);
  archive("point_index", value.point_index);
  archive("reason", value.reason);
}

template <typename Archive, Is<MeasureOptions> Value>
void Members(Archive& archive, Value& value) {
  archive("launches", value.launches);
  archive("min_pairs", value.min_pairs);
  archive("half_width", value.half_width);
  archive("max_time_ms", value.max_time);
  archive("confidence", value.confidence);
  archive("min_effect", value.min_effect);
  archive("max_attempts", value.max_attempts);
  archive("warm", value.warm);
  archive("zeros", value.zeros);
  archive("breakdown", value.breakdown);
  archive("prune", value.prune);
}

template <typename Archive, Is<Budget> Value>
void Members(Archive& archive, Value& value) {
  archive("effort_hours", value.effort_hours);
  archive("wall_ms", value.wall);
  archive("max_error", value.max_error);
  archive("rounds", value.rounds);
}

template <typename Archive, Is<Economics> Value>
void Members(Archive& archive, Value& value) {
  archive("gpu_hours", value.gpu_hours);
  archive("engineer_hour_in_gpu_hours", value.engineer_hour_in_gpu_hours);
}

template <typename Archive, Is<Campaign> Value>
void Members(Archive& archive, Value& value) {
  archive("schema", value.schema);
  archive("name", value.name);
  archive("question", value.question);
  archive("model", value.model);
  archive("layers_kept", value.layers_kept);
  archive("machine_auto", value.machine_auto);
  archive("machine", value.machine);
  archive("baseline", value.baseline);
  archive("points", value.points);
  archive("measure", value.measure);
  archive("budget", value.budget);
  archive("economics", value.economics);
  archive("interventions", value.interventions);
  archive("infeasible", value.infeasible);
  archive("fidelity", value.fidelity);
  archive("overrides", value.overrides);
  archive("warnings", value.warnings);
}

// ---- Trial ----

template <typename Archive, Is<TrialSpec> Value>
void Members(Archive& archive, Value& value) {
  archive("trial_id", value.trial_id);
  archive("intervention_id", value.intervention_id);
  archive("choice", value.choice);
  archive("point_index", value.point_index);
  archive("baseline", value.baseline);
  archive("variant", value.variant);
  archive("round", value.round);
  archive("role", value.role);
  archive("settled", value.settled);
  archive("settled_reason", value.settled_reason);
}

}  // namespace lastflop
