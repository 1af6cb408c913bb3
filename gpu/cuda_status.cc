#include "gpu/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace lastflop {

absl::Status CudaStatus(cudaError_t error, absl::string_view doing) {
  if (error == cudaSuccess) {
    return absl::OkStatus();
  }
  const std::string message =
      absl::StrCat(doing, ": ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  if (!IsStickyCudaError(error)) {
    cudaGetLastError();  // Told here: it is no error of the launches that follow.
  }
  if (error == cudaErrorMemoryAllocation) {
    return absl::ResourceExhaustedError(message);
  }
  // DataLoss: the context is gone and everything on the device with it.
  return IsStickyCudaError(error) ? absl::DataLossError(message) : absl::InternalError(message);
}

bool IsStickyCudaError(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

absl::Status LastLaunchStatus(absl::string_view kernel) {
  return CudaStatus(cudaGetLastError(), absl::StrCat("launching ", kernel));
}

}  // namespace lastflop
