#include "worker/data_checksum.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "common/random.h"
#include "worker/token_ids.h"

namespace lastflop {
namespace {

// FNV-1a, 64 bit.
class Checksum {
 public:
  void Add(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash_ = (hash_ ^ ((value >> (8 * byte)) & 0xFFU)) * 0x100000001B3ULL;
    }
  }
  std::string Text() const { return absl::StrFormat("%016x", hash_); }

 private:
  uint64_t hash_ = 0xCBF29CE484222325ULL;
};

}  // namespace

std::string ChecksumOfData(uint64_t seed, int64_t vocab_size, bool zeros) {
  constexpr uint64_t kSampled = 1024;
  Checksum checksum;
  for (uint64_t stream = 0; stream < 4; ++stream) {
    for (uint64_t i = 0; i < kSampled; ++i) {
      const float weight = TrueWeight(seed, stream << 32U, i * 977, zeros ? 0.0F : 1.0F);
      uint32_t bits = 0;
      std::memcpy(&bits, &weight, sizeof(bits));
      checksum.Add(bits);
    }
  }
  for (const int32_t id : DrawTokenIds(seed, 0, 0, kSampled, vocab_size)) {
    checksum.Add(static_cast<uint64_t>(id));
  }
  return checksum.Text();
}

}  // namespace lastflop
