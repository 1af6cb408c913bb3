#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/cpu_step.h"

// moe.kernel: plugin:NAME on the CPU backend.
namespace lastflop {

// Makes a plugin op ready: the plugin itself, its weights, and what tells their true values. Errors
// as PluginHost::Load() and PluginMoe::Create().
absl::Status LoadCpuPlugin(const CpuStepInputs& inputs, const FusedMoeShape& shape, CpuStep& step,
                           CpuBufferStore& store, ThreadPool& pool, CpuOp& op);

// Runs a plugin op on the step's tokens. Internal: what the plugin says.
absl::Status RunCpuPlugin(CpuStep& step, CpuOp& op, const FusedMoeShape& shape);

// Fills what follows the plugin's output and workspace with the guard pattern.
void GuardPlugin(CpuStep& step, CpuOp& op, int64_t out_values);

// What the plugin wrote where it must not, in words; nullopt when it did not. `out_values`: of bf16
// in its output.
std::optional<std::string> BrokenGuard(CpuStep& step, CpuOp& op, int64_t out_values);

}  // namespace lastflop
