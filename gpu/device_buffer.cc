#include "gpu/device_buffer.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "gpu/cuda_status.h"

namespace lastflop {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(size_t bytes) {
  DeviceBuffer buffer;
  buffer.bytes_ = bytes;
  if (bytes > 0) {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, bytes);
    if (error != cudaSuccess) {
      return CudaStatus(error, absl::StrCat("allocating ", bytes, " B of device memory"));
    }
    buffer.data_.reset(static_cast<std::byte*>(data));
  }
  return buffer;
}

void DeviceBuffer::Free::operator()(std::byte* data) const { cudaFree(data); }

}  // namespace lastflop
