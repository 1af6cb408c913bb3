#include "kernels/cpu/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void AlignedBuffer::Unmap::operator()(std::byte* /*data*/) const { munmap(mapping, mapping_bytes); }

absl::StatusOr<AlignedBuffer> AlignedBuffer::Create(size_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) {
    return buffer;
  }
  const size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  const size_t mapping_bytes = (bytes + kPage - 1) / kPage * kPage + (alignment - kPage);
  void* mapping =
      mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("allocating ", bytes, " bytes of host memory failed"));
  }
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  auto* data = reinterpret_cast<std::byte*>((address + alignment - 1) / alignment * alignment);
  if (alignment == kHugePage) {
    // A wish: without huge pages everything works, with more TLB misses.
    madvise(data, bytes, MADV_HUGEPAGE);
  }
  buffer.data_ = std::unique_ptr<std::byte, Unmap>(
      data, Unmap{.bytes = bytes, .mapping = mapping, .mapping_bytes = mapping_bytes});
  return buffer;
}

}  // namespace lastflop
