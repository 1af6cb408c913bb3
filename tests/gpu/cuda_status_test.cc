#include "gpu/cuda_status.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

// driver_types.h says of each of these that the process must be ended to go on using CUDA.
constexpr cudaError_t kSticky[] = {
    cudaErrorECCUncorrectable,    cudaErrorNvlinkUncorrectable, cudaErrorContained,
    cudaErrorIllegalAddress,      cudaErrorLaunchTimeout,       cudaErrorAssert,
    cudaErrorHardwareStackError,  cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,           cudaErrorLaunchFailure,
    cudaErrorTensorMemoryLeak,    cudaErrorExternalDevice};

TEST(CudaStatusTest, TellsThatTheDeviceIsGoneAfterEveryErrorThatEndsAContext) {
  for (const cudaError_t error : kSticky) {
    EXPECT_TRUE(IsStickyCudaError(error)) << error;
    EXPECT_EQ(CudaStatus(error, "waiting").code(), absl::StatusCode::kDataLoss) << error;
  }
}

TEST(CudaStatusTest, GoesOnAfterErrorsThatLeaveTheContextAlone) {
  for (const cudaError_t error : {cudaErrorInvalidValue, cudaErrorLaunchOutOfResources,
                                  cudaErrorCooperativeLaunchTooLarge, cudaErrorNotSupported}) {
    EXPECT_FALSE(IsStickyCudaError(error)) << error;
    EXPECT_EQ(CudaStatus(error, "launching").code(), absl::StatusCode::kInternal) << error;
  }
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "allocating").code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace lastflop
