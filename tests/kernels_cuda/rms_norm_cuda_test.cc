#include "kernels/rms_norm/rms_norm_cuda.h"

#include <vector>

#include "kernels/rms_norm/rms_norm.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

TEST(RmsNormCudaTest, AddsTheResidualAndNormsWholeRows) {
  LASTFLOP_NEED_GPU();
  // Also a size that eight does not divide, and rows that registers do not hold.
  for (const int64_t size : {1, 100, 2048, 7168, 8191, 40000}) {
    for (const int64_t rows : {1, 5, 64}) {
      for (const bool adds : {false, true}) {
        const NormShape shape = {.rows = rows, .size = size, .stride = size, .add_residual = adds};
        const std::vector<Bf16> in = RandomValues(rows * size, 1, 2);
        const std::vector<Bf16> before = RandomValues(rows * size, 2, 2);
        const std::vector<Bf16> gain = RandomValues(size, 3);
        std::vector<float> residual = Floats(before);
        std::vector<float> reference(in.size());
        RmsNormReference(shape, in, residual, gain, reference);
        const DeviceArray<__nv_bfloat16> device_in(in);
        const DeviceArray<__nv_bfloat16> device_residual(before);
        const DeviceArray<__nv_bfloat16> device_gain(gain);
        const DeviceArray<__nv_bfloat16> out(rows * size);
        LASTFLOP_EXPECT_OK(LaunchRmsNorm(shape, device_in.get(), device_residual.get(),
                                         device_gain.get(), out.get(), nullptr));
        EXPECT_LE(RowError(out.Download<Bf16>(), reference, size), Tolerance(1, size))
            << "size " << size << " rows " << rows;
        EXPECT_EQ(Floats(device_residual.Download<Bf16>()), residual) << "size " << size;
      }
    }
  }
}

TEST(RmsNormCudaTest, NormsPartsInPlaceAndLeavesTheRest) {
  LASTFLOP_NEED_GPU();
  const std::vector<NormShape> shapes = {
      {.rows = 7, .size = 128, .stride = 1280, .parts = 8, .offset = 0},
      {.rows = 3, .size = 512, .stride = 2112, .parts = 1, .offset = 1536},
      {.rows = 1, .size = 1536, .stride = 2112, .parts = 1, .offset = 0},
      {.rows = 5, .size = 30, .stride = 101, .parts = 3, .offset = 7}};
  for (const NormShape& shape : shapes) {
    const std::vector<Bf16> data = RandomValues(shape.rows * shape.stride, 4, 2);
    const std::vector<Bf16> gain = RandomValues(shape.size, 5);
    std::vector<float> reference(data.size());
    RmsNormPartsReference(shape, data, gain, reference);
    const DeviceArray<__nv_bfloat16> device_data(data);
    const DeviceArray<__nv_bfloat16> device_gain(gain);
    LASTFLOP_EXPECT_OK(LaunchRmsNormParts(shape, device_data.get(), device_gain.get(), nullptr));
    const std::vector<Bf16> out = device_data.Download<Bf16>();
    EXPECT_LE(RowError(out, reference, shape.stride), Tolerance(1, shape.size))
        << "size " << shape.size;
    for (int64_t i = 0; i < shape.stride; ++i) {
      if (i < shape.offset || i >= shape.offset + shape.parts * shape.size) {
        ASSERT_EQ(out[static_cast<size_t>(i)], data[static_cast<size_t>(i)]);
      }
    }
  }
}

}  // namespace
}  // namespace lastflop
