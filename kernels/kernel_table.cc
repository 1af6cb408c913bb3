#include "kernels/kernel_table.h"

namespace lastflop {
namespace {

// Every kernel that a plan can name. A new one is a folder beside this file and a line here.
constexpr KernelInfo kKernels[] = {
    {"embedding", "embedding", "cpu cuda", "", "", "rows of a table by token id"},
    {"rms_norm",
     "attention.norm attention.query_norm attention.key_norm attention.query_latent_norm "
     "attention.kv_latent_norm ffn.norm final_norm",
     "cpu cuda", "", "", "residual addition and RMSNorm"},
    {"gemm",
     "attention.qkv attention.mla_down attention.query_up attention.output ffn.gate_up ffn.down "
     "shared.gate_up shared.down router.gemm lm_head",
     "cpu cuda", "bf16 fp8_block fp8 int4_g32 int4_g128 (cuda: bf16 fp8_block)", "",
     "dense product"},
    {"head_gemm", "attention.absorb attention.value_up", "cpu cuda", "bf16", "",
     "one small product a head, for MLA"},
    {"rope", "attention.rope", "cpu cuda", "bf16 fp8", "attention.cache",
     "rotary embedding and the write of the cache"},
    {"attention", "attention.attend", "cpu cuda", "bf16 fp8", "attention.cache",
     "softmax attention over the cache, GQA and absorbed MLA"},
    {"router", "router.top_k", "cpu cuda", "", "moe.expert_activation",
     "scores to experts and weights"},
    {"permute", "moe.permute", "cpu cuda", "", "", "groups (token, expert) pairs by local expert"},
    {"pad_rows", "moe.pad", "cuda", "", "moe.kernel",
     "copies tokens to the padded rows of their experts, whose products are one cuBLASLt batch"},
    {"dequant", "moe.dequant_gate_up moe.dequant_down", "cpu cuda", "int4_g32 int4_g128",
     "moe.dequant", "writes touched experts' weights as bf16"},
    {"grouped_gemm", "moe.gate_up moe.down", "cpu cuda",
     "bf16 fp8_block fp8 int4_g32 int4_g128 (cuda: bf16 fp8_block int4_g32 int4_g128 nvfp4 mxfp4)",
     "moe.weights moe.activations moe.tile_order moe.group_m",
     "one product per expert over its tokens"},
    {"quantize_rows", "moe.gate_up moe.down", "cuda", "fp8", "moe.activations",
     "rounds rows of activations to fp8 before an expert product"},
    {"swiglu", "moe.swiglu ffn.swiglu shared.swiglu", "cpu cuda", "", "", "silu(gate) * up"},
    {"moe_combine", "moe.combine", "cpu cuda", "", "", "weighted sum of a token's experts"},
    {"fused_moe", "moe.fused", "cpu cuda",
     "bf16 fp8_block fp8 int4_g32 int4_g128 (cuda: int4_g32 on sm_90)",
     "moe.weights moe.tile_order", "gate_up, activation, down and combine in one kernel"},
    {"sample", "sampling", "cpu cuda", "", "", "greedy choice over ranks"},
};

}  // namespace

std::span<const KernelInfo> KernelTable() { return kKernels; }

}  // namespace lastflop
