// Graphs that cannot be captured (H10): an error, never a graph, and the stream goes on.
#include <cuda_runtime_api.h>

#include "gpu/cuda_status.h"
#include "gpu/device_buffer.h"
#include "gpu/stream.h"
#include "gtest/gtest.h"
#include "kernels/cuda/compare_cuda.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

class GraphCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTFLOP_NEED_GPU();
    stream_ = *Stream::Create();
    buffer_ = *DeviceBuffer::Create(1 << 20);
  }

  absl::Status Fill() {
    return LaunchPoison(buffer_.data(), static_cast<int64_t>(buffer_.bytes()), stream_.get());
  }

  // Captures and replays a fill on the stream, and looks at what it wrote.
  void ExpectStreamWorks() {
    LASTFLOP_EXPECT_CUDA_OK(cudaMemset(buffer_.data(), 0, buffer_.bytes()));
    const auto graph = Graph::Capture(stream_, [this] { return Fill(); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->num_work_nodes(), 1u);
    LASTFLOP_EXPECT_OK(graph->Launch(stream_));
    LASTFLOP_EXPECT_OK(stream_.Synchronize());
    unsigned char last = 0;
    LASTFLOP_EXPECT_CUDA_OK(
        cudaMemcpy(&last, buffer_.data() + buffer_.bytes() - 1, 1, cudaMemcpyDeviceToHost));
    EXPECT_EQ(last, 0xFF);
  }

  Stream stream_;
  DeviceBuffer buffer_;
};

TEST_F(GraphCudaTest, AWaitInsideOfACaptureIsAnErrorAndNoGraph) {
  const auto graph = Graph::Capture(stream_, [this]() -> absl::Status {
    const absl::Status filled = Fill();
    return filled.ok() ? stream_.Synchronize() : filled;
  });
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInternal) << graph.status();
  ExpectStreamWorks();
}

TEST_F(GraphCudaTest, AnAllocationInsideOfACaptureIsAnErrorAndNoGraph) {
  const auto graph = Graph::Capture(stream_, [] { return DeviceBuffer::Create(1 << 20).status(); });
  EXPECT_FALSE(graph.ok());
  ExpectStreamWorks();
}

TEST_F(GraphCudaTest, WorkThatLeavesTheStreamAndDoesNotComeBackIsAnErrorAndNoGraph) {
  const Stream other = *Stream::Create();
  const Event fork = *Event::Create();
  const auto graph = Graph::Capture(stream_, [&]() -> absl::Status {
    const absl::Status recorded = fork.Record(stream_.get());
    if (!recorded.ok()) {
      return recorded;
    }
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaStreamWaitEvent(other.get(), fork.get(), 0), "forking");
    return LaunchPoison(buffer_.data(), 1 << 10, other.get());
  });
  EXPECT_FALSE(graph.ok());
  ExpectStreamWorks();
}

// What a call was refused is told once, and is not taken for an error of a later launch.
TEST_F(GraphCudaTest, ARefusedCallIsNoErrorOfTheNextLaunch) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  LASTFLOP_EXPECT_CUDA_OK(cudaMemGetInfo(&free_bytes, &total_bytes));
  void* memory = nullptr;
  EXPECT_EQ(CudaStatus(cudaMalloc(&memory, 2 * total_bytes), "allocating").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(LastLaunchStatus("a kernel").ok());
  EXPECT_FALSE(CudaStatus(cudaMemset(nullptr, 0, 1 << 20), "filling").ok());
  EXPECT_TRUE(LastLaunchStatus("a kernel").ok());
  ExpectStreamWorks();
}

TEST_F(GraphCudaTest, WhatIsCapturedDoesNotRun) {
  LASTFLOP_EXPECT_CUDA_OK(cudaMemset(buffer_.data(), 0, buffer_.bytes()));
  ASSERT_TRUE(Graph::Capture(stream_, [this] { return Fill(); }).ok());
  LASTFLOP_EXPECT_OK(stream_.Synchronize());
  unsigned char first = 1;
  LASTFLOP_EXPECT_CUDA_OK(cudaMemcpy(&first, buffer_.data(), 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(first, 0);
}

}  // namespace
}  // namespace lastflop
