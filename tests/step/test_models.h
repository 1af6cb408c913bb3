#pragma once

#include "common/model.h"

namespace lastflop {

// Kimi-K2.5: 384 experts, top-8, MLA, sigmoid router with bias, int4 experts, one dense layer.
Model KimiModel();

// Qwen3-30B-A3B: 128 experts, top-8, GQA with 4 KV heads and qk norm, softmax router, all bf16.
Model QwenModel();

// DeepSeek-V3: 256 experts in 8 groups of which 4 take part, fp8 blocks of 128 x 128.
Model DeepSeekModel();

}  // namespace lastflop
