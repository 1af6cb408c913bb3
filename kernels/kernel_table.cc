#include "kernels/kernel_table.h"

namespace lastflop {
namespace {

// Every kernel that a plan can name. A new one is a folder beside this file and a line here.
constexpr KernelInfo kKernels[] = {
    {"permute", "moe.permute", "cpu", "", "", "groups (token, expert) pairs by local expert"},
    {"dequant", "moe.dequant", "cpu", "int4_g32 int4_g128", "moe.dequant",
     "writes touched experts' weights as bf16"},
    {"grouped_gemm", "moe.gate_up moe.down", "cpu", "bf16 int4_g32 int4_g128",
     "moe.weights moe.tile_order moe.group_m", "one product per expert over its tokens"},
    {"swiglu", "moe.activation ffn.activation", "cpu", "", "", "silu(gate) * up"},
    {"moe_combine", "moe.combine", "cpu", "", "", "weighted sum of a token's experts"},
    {"fused_moe", "moe.fused", "cpu", "bf16 int4_g32 int4_g128", "moe.weights moe.tile_order",
     "gate_up, activation, down and combine in one kernel"},
};

}  // namespace

std::span<const KernelInfo> KernelTable() { return kKernels; }

}  // namespace lastflop
