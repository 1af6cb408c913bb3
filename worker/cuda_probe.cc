#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "gpu/cublas_lt.h"
#include "gpu/cuda_status.h"
#include "gpu/device_buffer.h"
#include "gpu/stream.h"
#include "gpu/visible_gpus.h"
#include "kernels/cuda/read_probe_cuda.h"
#include "kernels/cuda/weights_random_cuda.h"
#include "worker/device_probe.h"

namespace lastflop {
namespace {

constexpr int64_t kSizes[] = {8'000'000,   24'000'000,    48'000'000,   96'000'000,
                              200'000'000, 1'000'000'000, 4'000'000'000};
constexpr int kReads = 9;
constexpr int64_t kNeighbours = 8;
constexpr int64_t kProductSize = 8192;
constexpr int64_t kShortProductSize = 4096;  // Over before a power limit slows the clock down.
constexpr int kProducts = 5;
constexpr int64_t kGapBytes = 16'000'000;  // Read from the L2 in longer than a launch takes.
constexpr int kGapKernels = 200;

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Median time of a read of `bytes` whose lines no cache holds, as one of several neighbours in a
// graph: each reads a place of its own, and what a launch costs between others is part of it.
absl::StatusOr<double> ColdReadMicrosOf(int64_t bytes, const DeviceBuffer& memory,
                                        const DeviceBuffer& evictor, const DeviceBuffer& sink,
                                        const Stream& stream) {
  const int64_t neighbours =
      std::clamp<int64_t>(static_cast<int64_t>(memory.bytes()) / bytes, 1, kNeighbours);
  LASTFLOP_ASSIGN_OR_RETURN(const Event begin, Event::Create());
  LASTFLOP_ASSIGN_OR_RETURN(const Event end, Event::Create());
  const auto read = [&](const DeviceBuffer& buffer, int64_t at, int64_t count) {
    return LaunchReadProbe(buffer.data() + at, count, sink.As<uint32_t>(), stream.get());
  };
  LASTFLOP_ASSIGN_OR_RETURN(
      const Graph graph, Graph::Capture(stream, [&]() -> absl::Status {
        // By reading: lines that were written would have to be written back under the timed read.
        LASTFLOP_RETURN_IF_ERROR(read(evictor, 0, static_cast<int64_t>(evictor.bytes())));
        LASTFLOP_RETURN_IF_ERROR(begin.RecordInGraph(stream.get()));
        for (int64_t i = 0; i < neighbours; ++i) {
          LASTFLOP_RETURN_IF_ERROR(read(memory, i * bytes, bytes));
        }
        return end.RecordInGraph(stream.get());
      }));
  std::vector<double> times;
  for (int i = 0; i < kReads; ++i) {
    LASTFLOP_RETURN_IF_ERROR(graph.Launch(stream));
    LASTFLOP_RETURN_IF_ERROR(stream.Synchronize());
    LASTFLOP_ASSIGN_OR_RETURN(const double us, end.MicrosSince(begin));
    times.push_back(us / static_cast<double>(neighbours));
  }
  return Median(std::move(times));
}

absl::Status MeasureReads(const cudaDeviceProp& properties, const Stream& stream,
                          Machine& machine) {
  const int64_t most = *std::max_element(std::begin(kSizes), std::end(kSizes));
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer memory,
                            DeviceBuffer::Create(static_cast<size_t>(most)));
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer evictor,
                            DeviceBuffer::Create(4 * static_cast<size_t>(properties.l2CacheSize)));
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer sink, DeviceBuffer::Create(sizeof(uint32_t)));
  LASTFLOP_RETURN_IF_ERROR(LaunchFillProbe(memory.data(), most, stream.get()));
  LASTFLOP_RETURN_IF_ERROR(
      LaunchFillProbe(evictor.data(), static_cast<int64_t>(evictor.bytes()), stream.get()));
  LASTFLOP_RETURN_IF_ERROR(LaunchReadProbe(memory.data(), most, sink.As<uint32_t>(), stream.get()));
  LASTFLOP_RETURN_IF_ERROR(stream.Synchronize());
  for (const int64_t bytes : kSizes) {
    LASTFLOP_ASSIGN_OR_RETURN(const double us,
                              ColdReadMicrosOf(bytes, memory, evictor, sink, stream));
    machine.cold_read.push_back({.bytes = static_cast<double>(bytes), .us = us});
  }
  return absl::OkStatus();
}

// Times in us of a large bf16 product on random numbers: on zeros it would run faster.
absl::StatusOr<std::vector<double>> ProductMicros(const Stream& stream, int64_t size) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<CublasLt> lt, CublasLt::Create());
  const auto bytes = static_cast<size_t>(size * size * 2);
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer in, DeviceBuffer::Create(bytes));
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer weight, DeviceBuffer::Create(bytes));
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer out, DeviceBuffer::Create(bytes));
  CudaWeightSlice random{.seed = 1,
                         .amplitude = 1,
                         .rows_full = size,
                         .cols_full = size,
                         .part_rows = {size, 0, 0},
                         .cols = size};
  for (const DeviceBuffer* buffer : {&in, &weight}) {
    ++random.stream;
    LASTFLOP_RETURN_IF_ERROR(LaunchFillRows(random, buffer->As<__nv_bfloat16>(), stream.get()));
  }
  const DenseGemm gemm{.num_tokens = size,
                       .out_features = size,
                       .in_features = size,
                       .in_stride = size,
                       .out_stride = size};
  LASTFLOP_RETURN_IF_ERROR(lt->Prepare(gemm));
  LASTFLOP_ASSIGN_OR_RETURN(const Event begin, Event::Create());
  LASTFLOP_ASSIGN_OR_RETURN(const Event end, Event::Create());
  std::vector<double> times;
  for (int i = 0; i < kProducts; ++i) {
    LASTFLOP_RETURN_IF_ERROR(begin.Record(stream.get()));
    LASTFLOP_RETURN_IF_ERROR(
        lt->Run(gemm, in.data(), weight.data(), nullptr, out.data(), stream.get()));
    LASTFLOP_RETURN_IF_ERROR(end.Record(stream.get()));
    LASTFLOP_RETURN_IF_ERROR(stream.Synchronize());
    LASTFLOP_ASSIGN_OR_RETURN(const double us, end.MicrosSince(begin));
    times.push_back(us);
  }
  return times;
}

double TflopPerS(int64_t size, double us) {
  return 2 * std::pow(static_cast<double>(size), 3) / us * 1e-6;
}

// The best rate of products that a floor may count on.
absl::StatusOr<double> BestProductTflopPerS(const Stream& stream) {
  double best = 0;
  for (const int64_t size : {kShortProductSize, kProductSize}) {
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> times, ProductMicros(stream, size));
    best = std::max(best, TflopPerS(size, *std::min_element(times.begin(), times.end())));
  }
  return best;
}

// What lies between two kernels that are launched one by one, beyond what a graph leaves between
// them. The kernels are longer than a launch, so that the host is ahead, as in a step.
absl::StatusOr<double> LaunchGapMicros(const Stream& stream) {
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer memory,
                            DeviceBuffer::Create(static_cast<size_t>(kGapBytes)));
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer sink, DeviceBuffer::Create(sizeof(uint32_t)));
  LASTFLOP_RETURN_IF_ERROR(LaunchFillProbe(memory.data(), kGapBytes, stream.get()));
  LASTFLOP_ASSIGN_OR_RETURN(const Event begin, Event::Create());
  LASTFLOP_ASSIGN_OR_RETURN(const Event end, Event::Create());
  const auto read_all = [&]() -> absl::Status {
    for (int i = 0; i < kGapKernels; ++i) {
      LASTFLOP_RETURN_IF_ERROR(
          LaunchReadProbe(memory.data(), kGapBytes, sink.As<uint32_t>(), stream.get()));
    }
    return absl::OkStatus();
  };
  LASTFLOP_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(stream, read_all));
  std::vector<double> differences;
  for (int i = 0; i < kReads; ++i) {
    double us[2] = {};
    for (const bool is_graph : {false, true}) {
      LASTFLOP_RETURN_IF_ERROR(begin.Record(stream.get()));
      LASTFLOP_RETURN_IF_ERROR(is_graph ? graph.Launch(stream) : read_all());
      LASTFLOP_RETURN_IF_ERROR(end.Record(stream.get()));
      LASTFLOP_RETURN_IF_ERROR(stream.Synchronize());
      LASTFLOP_ASSIGN_OR_RETURN(us[is_graph ? 1 : 0], end.MicrosSince(begin));
    }
    differences.push_back((us[0] - us[1]) / kGapKernels);
  }
  return Median(std::move(differences));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> GpusWithoutPeerAccess() {
  NumberGpusByBus();
  int num_gpus = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDeviceCount(&num_gpus), "counting GPUs");
  std::vector<std::string> missing;
  for (int from = 0; from < num_gpus; ++from) {
    for (int to = 0; to < num_gpus; ++to) {
      int can = 1;
      if (from != to) {
        LASTFLOP_CUDA_RETURN_IF_ERROR(cudaDeviceCanAccessPeer(&can, from, to),
                                      "asking for peer access");
      }
      if (can == 0) {
        missing.push_back(absl::StrCat(from, " -> ", to));
      }
    }
  }
  return missing;
}

bool HasCudaBackend() { return true; }

int CudaVersionOfBuild() { return CUDART_VERSION; }

absl::StatusOr<Machine> ProbeCudaDevice(int device_index, Machine machine) {
  NumberGpusByBus();
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_index), "choosing the device");
  cudaDeviceProp properties{};
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, device_index),
                                "asking for the device");
  machine.l2_bytes = properties.l2CacheSize;
  LASTFLOP_ASSIGN_OR_RETURN(const Stream stream, Stream::Create());
  LASTFLOP_RETURN_IF_ERROR(MeasureReads(properties, stream, machine));
  LASTFLOP_ASSIGN_OR_RETURN(const double gap_us, LaunchGapMicros(stream));
  if (gap_us > 0) {
    machine.launch_gap_us = gap_us;
  }
  // Without the library there are floors of bytes alone.
  if (const absl::StatusOr<double> best = BestProductTflopPerS(stream); best.ok()) {
    machine.measured_bf16_tflop_per_s = *best;
  } else {
    Log(LogSeverity::kWarning, "products_not_measured",
        {{"reason", std::string(best.status().message())}});
  }
  return machine;
}

absl::StatusOr<double> ProbeProductTflopPerS(int device_index) {
  NumberGpusByBus();
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaSetDevice(device_index), "choosing the device");
  LASTFLOP_ASSIGN_OR_RETURN(const Stream stream, Stream::Create());
  LASTFLOP_ASSIGN_OR_RETURN(std::vector<double> times, ProductMicros(stream, kProductSize));
  return TflopPerS(kProductSize, Median(std::move(times)));
}

}  // namespace lastflop
