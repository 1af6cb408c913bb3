#include "worker/arm_order.h"

#include "common/hash.h"
#include "common/random.h"

namespace lastflop {
namespace {

constexpr uint64_t kArmOrderStream = 0x6172'6D73;

}  // namespace

bool VariantFirst(absl::string_view trial, int launch, int64_t pair_index) {
  const uint64_t coin =
      CounterRandom(StableHash(trial), kArmOrderStream, static_cast<uint64_t>(pair_index / 2));
  return ((coin ^ static_cast<uint64_t>(pair_index) ^ static_cast<uint64_t>(launch)) & 1) != 0;
}

}  // namespace lastflop
