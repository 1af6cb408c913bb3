#include "gpu/stream.h"

#include <vector>

#include "common/status_macros.h"
#include "gpu/cuda_status.h"

namespace lastflop {

absl::StatusOr<Stream> Stream::Create() {
  cudaStream_t made = nullptr;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking),
                                "making a stream");
  Stream stream;
  stream.stream_.reset(made);
  return stream;
}

absl::Status Stream::Synchronize() const {
  return CudaStatus(cudaStreamSynchronize(get()), "waiting for the device");
}

absl::StatusOr<Event> Event::Create() {
  cudaEvent_t made = nullptr;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaEventCreate(&made), "making an event");
  Event event;
  event.event_.reset(made);
  return event;
}

absl::Status Event::Record(cudaStream_t stream) const {
  return CudaStatus(cudaEventRecord(get(), stream), "recording an event");
}

absl::Status Event::RecordInGraph(cudaStream_t stream) const {
  return CudaStatus(cudaEventRecordWithFlags(get(), stream, cudaEventRecordExternal),
                    "recording an event in a graph");
}

absl::StatusOr<double> Event::MicrosSince(const Event& begin) const {
  float milliseconds = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&milliseconds, begin.get(), get()),
                                "reading an event");
  return 1e3 * static_cast<double>(milliseconds);
}

namespace {

struct NodeCounts {
  size_t work = 0;
  size_t pinned = 0;
};

absl::StatusOr<bool> IsPinned(cudaGraphNode_t kernel) {
  cudaLaunchAttributeValue value{};
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaGraphKernelNodeGetAttribute(kernel, cudaLaunchAttributeAccessPolicyWindow, &value),
      "reading the L2 window of a node of a graph");
  return value.accessPolicyWindow.num_bytes > 0 &&
         value.accessPolicyWindow.hitProp == cudaAccessPropertyPersisting;
}

absl::StatusOr<NodeCounts> CountNodes(cudaGraph_t graph) {
  size_t num_nodes = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGraphGetNodes(graph, nullptr, &num_nodes),
                                "counting the nodes of a graph");
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGraphGetNodes(graph, nodes.data(), &num_nodes),
                                "reading the nodes of a graph");
  NodeCounts count;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGraphNodeGetType(node, &type), "reading a node of a graph");
    if (type == cudaGraphNodeTypeKernel) {
      LASTFLOP_ASSIGN_OR_RETURN(const bool is_pinned, IsPinned(node));
      count.pinned += is_pinned ? 1 : 0;
    }
    count.work += type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy ||
                          type == cudaGraphNodeTypeMemset
                      ? 1
                      : 0;
  }
  return count;
}

}  // namespace

absl::Status Graph::Begin(const Stream& stream) {
  return CudaStatus(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                    "beginning a capture");
}

absl::StatusOr<Graph> Graph::End(const Stream& stream, const absl::Status& status) {
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream.get(), &captured);
  struct DestroyGraph {
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  };
  const std::unique_ptr<CUgraph_st, DestroyGraph> holder(captured);
  if (!status.ok()) {
    cudaGetLastError();  // Of the capture that `status` broke.
    return status;
  }
  LASTFLOP_CUDA_RETURN_IF_ERROR(ended, "ending a capture");
  Graph graph;
  LASTFLOP_ASSIGN_OR_RETURN(const NodeCounts count, CountNodes(captured));
  graph.num_work_nodes_ = count.work;
  graph.num_pinned_nodes_ = count.pinned;
  cudaGraphExec_t exec = nullptr;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGraphInstantiate(&exec, captured, 0), "instantiating a graph");
  graph.exec_.reset(exec);
  return graph;
}

absl::Status Graph::Launch(const Stream& stream) const {
  return CudaStatus(cudaGraphLaunch(exec_.get(), stream.get()), "launching a graph");
}

}  // namespace lastflop
