#include "worker/plugin_support.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lastflop {

absl::Status CheckPluginFields(const Plan::Moe& moe) {
  const auto refuse = [&moe](absl::string_view field, const std::string& value,
                             absl::string_view reason) {
    return absl::UnimplementedError(
        absl::StrCat(field, "=", value, ": plugin:", moe.plugin, " ", reason));
  };
  if (moe.dequant == Dequant::kSeparate) {
    return refuse("moe.dequant", "separate", "is given the weights as they are stored");
  }
  if (moe.activations != ActivationFormat::kBf16) {
    return refuse("moe.activations", std::string(ToWord(moe.activations)),
                  "is given bf16, and may quantize it itself");
  }
  if (moe.tile_order != TileOrder::kRowMajor) {
    return refuse("moe.tile_order", std::string(ToWord(moe.tile_order)), "orders its tiles itself");
  }
  if (moe.group_m > 0) {
    return refuse("moe.group_m", absl::StrCat(moe.group_m), "orders its tiles itself");
  }
  if (moe.l2_pin.has_value()) {
    return refuse("moe.l2_pin", absl::StrCat("share ", moe.l2_pin->share),
                  "keeps weights where lastflop does not know them");
  }
  if (moe.cache_hint != CacheHint::kNone) {
    return refuse("moe.cache_hint", std::string(ToWord(moe.cache_hint)),
                  "loads its weights itself");
  }
  return absl::OkStatus();
}

}  // namespace lastflop
