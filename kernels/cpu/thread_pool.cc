#include "kernels/cpu/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

// About 60 us of pauses on a Zen 3 core: longer than the gap between two ops of a step.
constexpr int kSpinsBeforeSleep = 4000;
constexpr int kYieldsBeforeSleep = 20;  // When cores are shared.

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr,
          nullptr, 0);
}

absl::Status PinThisThread(int core) {
  if (core < 0) {
    return absl::OkStatus();
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < CPU_SETSIZE) {
    CPU_SET(static_cast<size_t>(core), &set);
  }
  if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("core ", core, ": this process may not run there, or it does not exist"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(const Options& options) {
  if (options.cores.empty()) {
    return absl::InvalidArgumentError("a thread pool needs at least one core");
  }
  const VectorIsa isa = options.isa.value_or(DetectVectorIsa());
  if (isa == VectorIsa::kAvx2 && DetectVectorIsa() != VectorIsa::kAvx2) {
    return absl::InvalidArgumentError("this CPU has no AVX2");
  }
  // Each core is tried on this thread, which ends up on the first: threads then cannot fail.
  for (auto core = options.cores.rbegin(); core != options.cores.rend(); ++core) {
    LASTFLOP_RETURN_IF_ERROR(PinThisThread(*core));
  }
  LASTFLOP_ASSIGN_OR_RETURN(AlignedBuffer scratch,
                            AlignedBuffer::Create(kScratchBytes * options.cores.size()));
  return std::unique_ptr<ThreadPool>(new ThreadPool(options, isa, std::move(scratch)));
}

ThreadPool::ThreadPool(const Options& options, VectorIsa isa, AlignedBuffer scratch)
    : num_threads_(static_cast<int>(options.cores.size())),
      shared_cores_(options.shared_cores),
      isa_(isa),
      scratch_(std::move(scratch)) {
  for (int thread = 1; thread < num_threads_; ++thread) {
    threads_.emplace_back([this, thread, core = options.cores[static_cast<size_t>(thread)]] {
      PinThisThread(core).IgnoreError();  // Create() has tried it.
      Work(thread);
    });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  epoch_.fetch_add(1);
  FutexWakeAll(epoch_);
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ThreadPool::ParallelFor(int64_t num_tasks,
                             absl::FunctionRef<void(int64_t task, int thread)> fn) {
  if (num_threads_ == 1 || num_tasks <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) {
      fn(task, 0);
    }
    return;
  }
  RunOnAll([&](int thread) {
    for (int64_t task = NextTask(0); task < num_tasks; task = NextTask(0)) {
      fn(task, thread);
    }
  });
}

void ThreadPool::RunOnAll(absl::FunctionRef<void(int thread)> fn) {
  for (Counter& counter : counters_) {
    counter.value.store(0, std::memory_order_relaxed);
  }
  if (num_threads_ == 1) {
    fn(0);
    return;
  }
  Dispatch(fn);
}

void ThreadPool::Dispatch(absl::FunctionRef<void(int thread)> job) {
  job_ = &job;
  num_busy_.store(num_threads_ - 1, std::memory_order_relaxed);
  // Both sequentially consistent: either a thread going to sleep sees the new epoch, or this one
  // sees that it sleeps.
  epoch_.fetch_add(1);
  if (num_sleeping_.load() > 0) {
    FutexWakeAll(epoch_);
  }
  job(0);
  for (int spins = 0; num_busy_.load(std::memory_order_acquire) != 0; ++spins) {
    Pause(spins);
  }
}

void ThreadPool::Barrier() {
  if (num_threads_ == 1) {
    return;
  }
  const uint32_t epoch = barrier_epoch_.load(std::memory_order_acquire);
  if (num_at_barrier_.fetch_add(1, std::memory_order_acq_rel) == num_threads_ - 1) {
    num_at_barrier_.store(0, std::memory_order_relaxed);
    barrier_epoch_.fetch_add(1, std::memory_order_release);
    return;
  }
  for (int spins = 0; barrier_epoch_.load(std::memory_order_acquire) == epoch; ++spins) {
    Pause(spins);
  }
}

void ThreadPool::Work(int thread) {
  uint32_t seen = 0;
  while (true) {
    seen = WaitForJob(seen);
    if (stopping_) {
      return;
    }
    (*job_)(thread);
    num_busy_.fetch_sub(1, std::memory_order_release);
  }
}

uint32_t ThreadPool::WaitForJob(uint32_t seen) {
  const int spins_before_sleep = shared_cores_ ? kYieldsBeforeSleep : kSpinsBeforeSleep;
  for (int spins = 0; spins < spins_before_sleep; ++spins) {
    const uint32_t epoch = epoch_.load(std::memory_order_acquire);
    if (epoch != seen) {
      return epoch;
    }
    Pause(spins);
  }
  num_sleeping_.fetch_add(1);
  while (epoch_.load() == seen) {
    FutexWait(epoch_, seen);
  }
  num_sleeping_.fetch_sub(1);
  return epoch_.load(std::memory_order_acquire);
}

void ThreadPool::Pause(int spins) const {
  if (shared_cores_ || spins > kSpinsBeforeSleep) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace lastflop
