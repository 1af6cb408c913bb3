#include "kernels/cuda/compare_cuda.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/elementwise_cuda.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

CompareResult Compare(const std::vector<float>& got, const std::vector<float>& want,
                      int64_t row_size) {
  const auto rows = static_cast<int64_t>(got.size()) / row_size;
  const DeviceArray<float> device_got(got);
  const DeviceArray<float> device_want(want);
  const DeviceArray<std::byte> workspace(CompareWorkspaceBytes(rows));
  const DeviceArray<CompareResult> result(1);
  LASTFLOP_EXPECT_OK(LaunchCompare(device_got.get(), row_size, device_want.get(), row_size, rows,
                                   row_size, result.get(), workspace.get(), nullptr));
  return result.Download()[0];
}

TEST(CompareCudaTest, MeasuresRowsAsTheHostDoes) {
  LASTFLOP_NEED_GPU();
  const std::vector<float> want = Floats(RandomValues(301 * 77, 1, 5));
  std::vector<float> got = want;
  EXPECT_EQ(Compare(got, want, 77).max_row_error, 0);
  EXPECT_EQ(Compare(got, want, 77).worst_row, -1);
  for (size_t i = 0; i < got.size(); ++i) {
    got[i] += 1e-3f * CounterUniform(1, 2, i);
  }
  got[100 * 77 + 5] += 2;
  const CompareResult result = Compare(got, want, 77);
  EXPECT_NEAR(result.max_row_error, RowError(got, want, 77), 1e-6);
  EXPECT_EQ(result.worst_row, 100);
  EXPECT_NEAR(result.max_abs_error, 2, 1e-2);
  EXPECT_EQ(result.num_non_finite, 0);
}

TEST(CompareCudaTest, FindsWhatIsNotFinite) {
  LASTFLOP_NEED_GPU();
  std::vector<float> want(1000, 1);
  std::vector<float> got = want;
  got[700] = NAN;
  got[650] = INFINITY;
  got[999] = NAN;
  const CompareResult result = Compare(got, want, 10);
  EXPECT_EQ(result.num_non_finite, 3);
  EXPECT_EQ(result.first_non_finite, 650);
  EXPECT_EQ(result.max_row_error, std::numeric_limits<double>::infinity());
}

TEST(CompareCudaTest, CallsANumberWhereZerosBelongInfinitelyWrong) {
  LASTFLOP_NEED_GPU();
  EXPECT_EQ(Compare({0, 0, 0, 1}, {0, 0, 0, 0}, 2).max_row_error,
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(Compare({0, 0}, {0, 0}, 2).max_row_error, 0);
}

TEST(ElementwiseCudaTest, AddsBiasesAndTensors) {
  LASTFLOP_NEED_GPU();
  const std::vector<Bf16> bias = RandomValues(24, 1);
  const std::vector<Bf16> data = RandomValues(5 * 24, 2);
  const DeviceArray<__nv_bfloat16> device_bias(bias);
  const DeviceArray<__nv_bfloat16> device_data(data);
  LASTFLOP_EXPECT_OK(LaunchAddBias(5, 24, device_bias.get(), device_data.get(), nullptr));
  std::vector<float> want = Floats(data);
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] = RoundToBf16(want[i] + ToFloat(bias[i % 24]));
  }
  EXPECT_EQ(Floats(device_data.Download<Bf16>()), want);
  const DeviceArray<__nv_bfloat16> addend(data);
  for (const int64_t count : {120, 119}) {
    const DeviceArray<__nv_bfloat16> sum(data);
    LASTFLOP_EXPECT_OK(LaunchAdd(count, addend.get(), sum.get(), nullptr));
    const std::vector<Bf16> got = sum.Download<Bf16>();
    for (size_t i = 0; i < got.size(); ++i) {
      const float value = ToFloat(data[i]);
      EXPECT_EQ(ToFloat(got[i]),
                static_cast<int64_t>(i) < count ? RoundToBf16(value + value) : value);
    }
  }
}

}  // namespace
}  // namespace lastflop
