#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// Configs as small as their families allow. Every one takes further members, e.g. `"n_group": 4`,
// which stand behind the others.
namespace lastflop {

inline std::string WithMembers(absl::string_view members, absl::string_view more) {
  return absl::StrCat("{", members, more.empty() ? "" : ", ", more, "}");
}

// 4 layers, the first dense; 16 experts of 64, top 2, one shared; latent attention.
inline std::string DeepseekConfig(absl::string_view model_type, absl::string_view more = "") {
  return WithMembers(absl::StrCat(R"("model_type": ")", model_type, R"(", "hidden_size": 256,
        "num_hidden_layers": 4, "first_k_dense_replace": 1, "intermediate_size": 512,
        "moe_intermediate_size": 64, "n_routed_experts": 16, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "num_attention_heads": 4, "kv_lora_rank": 32,
        "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 16, "vocab_size": 1000,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "tie_word_embeddings": false)"),
                     more);
}

// 4 layers, 16 experts of 64, top 2; 4 heads on 2.
inline std::string QwenConfig(absl::string_view model_type, absl::string_view more = "") {
  return WithMembers(absl::StrCat(R"("model_type": ")", model_type, R"(", "hidden_size": 256,
        "num_hidden_layers": 4, "intermediate_size": 512, "moe_intermediate_size": 64,
        "num_experts": 16, "num_experts_per_tok": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": false)"),
                     more);
}

// Families whose `intermediate_size` is the experts': 16 of 64.
inline std::string LocalExpertsConfig(absl::string_view model_type, absl::string_view more = "") {
  return WithMembers(absl::StrCat(R"("model_type": ")", model_type, R"(", "hidden_size": 256,
        "num_hidden_layers": 4, "intermediate_size": 64, "num_local_experts": 16,
        "num_experts_per_tok": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "vocab_size": 1000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
        "rope_theta": 10000, "tie_word_embeddings": false)"),
                     more);
}

}  // namespace lastflop
