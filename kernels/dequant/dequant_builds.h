#pragma once

#include <cstddef>
#include <cstdint>

namespace lastflop {

// One int4 panel to one bf16 panel.
void DequantPanelPortable(int64_t cols, int64_t group, const std::byte* panel, std::byte* out);
void DequantPanelAvx2(int64_t cols, int64_t group, const std::byte* panel, std::byte* out);

}  // namespace lastflop
