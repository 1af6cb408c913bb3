#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/vector_isa.h"

namespace lastflop {

// Persistent threads that run the CPU kernels of one rank; one pool per child process. The calling
// thread is thread 0 and works too. A dispatch costs one or two microseconds when the threads are
// awake: they spin for a while after each call and sleep when nothing comes.
//
// ParallelFor and RunOnAll are called by the thread that created the pool, one at a time, and
// return when all of the work is done. Memory written before the call is visible in it, and what it
// wrote is visible after.
class ThreadPool {
 public:
  struct Options {
    // The core of each thread; -1 leaves that thread unpinned. The caller is pinned to the first.
    std::vector<int> cores = {-1};
    // Other ranks run on the same cores: threads yield and sleep at once instead of spinning.
    bool shared_cores = false;
    // Unset: DetectVectorIsa(). Tests set kPortable.
    std::optional<VectorIsa> isa = std::nullopt;
  };

  // InvalidArgument: no cores, a core that does not exist or is not allowed, an ISA that this CPU
  // has not got.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> Create(const Options& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  bool shared_cores() const { return shared_cores_; }
  VectorIsa isa() const { return isa_; }

  // Calls fn(task, thread) for every task in [0, num_tasks): each thread takes the next one that
  // nobody has, in order.
  void ParallelFor(int64_t num_tasks, absl::FunctionRef<void(int64_t task, int thread)> fn);

  // Calls fn(thread) once on every thread: for kernels of several phases, which use Barrier() and
  // TaskCounter.
  void RunOnAll(absl::FunctionRef<void(int thread)> fn);

  // Inside RunOnAll only, by every thread: none goes on before all have come.
  void Barrier();

  // Inside RunOnAll: the next index of counter `counter` (0 to kNumCounters - 1), counting from 0
  // in each RunOnAll; phases that hand out tasks use one each.
  static constexpr int kNumCounters = 8;
  int64_t NextTask(int counter) {
    return counters_[static_cast<size_t>(counter)].value.fetch_add(1, std::memory_order_relaxed);
  }

  // Memory of its own for each thread, 64-byte aligned; what it holds between calls is undefined.
  static constexpr size_t kScratchBytes = size_t{256} << 10;
  std::byte* Scratch(int thread) {
    return scratch_.data() + static_cast<size_t>(thread) * kScratchBytes;
  }

 private:
  ThreadPool(const Options& options, VectorIsa isa, AlignedBuffer scratch);

  void Work(int thread);
  uint32_t WaitForJob(uint32_t seen);
  void Dispatch(absl::FunctionRef<void(int thread)> job);
  void Pause(int spins) const;

  const int num_threads_;
  const bool shared_cores_;
  const VectorIsa isa_;
  AlignedBuffer scratch_;
  std::vector<std::thread> threads_;

  // The job of the current dispatch; written before `epoch_` moves on, read after.
  const absl::FunctionRef<void(int thread)>* job_ = nullptr;
  bool stopping_ = false;

  alignas(64) std::atomic<uint32_t> epoch_ = 0;
  alignas(64) std::atomic<int> num_sleeping_ = 0;
  alignas(64) std::atomic<int> num_busy_ = 0;
  alignas(64) std::atomic<int> num_at_barrier_ = 0;
  alignas(64) std::atomic<uint32_t> barrier_epoch_ = 0;
  struct alignas(64) Counter {
    std::atomic<int64_t> value = 0;
  };
  Counter counters_[kNumCounters];
};

}  // namespace lastflop
