#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lastflop {

// A stream of the current device that does not wait for the default one. Move-only.
class Stream {
 public:
  static absl::StatusOr<Stream> Create();
  cudaStream_t get() const { return stream_.get(); }
  // Waits for all work; its errors come out here.
  absl::Status Synchronize() const;

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

// A point in a stream with a time. Move-only.
class Event {
 public:
  static absl::StatusOr<Event> Create();
  cudaEvent_t get() const { return event_.get(); }
  absl::Status Record(cudaStream_t stream) const;
  // Into a stream that is being captured: the graph records it at every replay.
  absl::Status RecordInGraph(cudaStream_t stream) const;
  // From `begin` to this, both done, in us (resolution about 0.5 us).
  absl::StatusOr<double> MicrosSince(const Event& begin) const;

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

// A captured graph, ready to be launched. Move-only.
class Graph {
 public:
  Graph() = default;

  // Captures what `enqueue` puts into the stream. Nothing of it runs. An error of `enqueue` ends
  // the capture.
  template <typename Enqueue>
  static absl::StatusOr<Graph> Capture(const Stream& stream, Enqueue&& enqueue) {
    absl::Status status = Begin(stream);
    if (!status.ok()) {
      return status;
    }
    status = enqueue();
    return End(stream, status);
  }

  // Nodes that do something on the device: kernels, copies, fills.
  size_t num_work_nodes() const { return num_work_nodes_; }
  // Of these, kernels with a window that asks the L2 to keep it (cudaAccessPropertyPersisting).
  size_t num_pinned_nodes() const { return num_pinned_nodes_; }
  absl::Status Launch(const Stream& stream) const;

 private:
  static absl::Status Begin(const Stream& stream);
  static absl::StatusOr<Graph> End(const Stream& stream, const absl::Status& status);

  struct Destroy {
    void operator()(cudaGraphExec_t exec) const { cudaGraphExecDestroy(exec); }
  };
  std::unique_ptr<CUgraphExec_st, Destroy> exec_;
  size_t num_work_nodes_ = 0;
  size_t num_pinned_nodes_ = 0;
};

}  // namespace lastflop
