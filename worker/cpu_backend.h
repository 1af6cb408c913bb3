#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/thread_pool.h"
#include "worker/arm.h"
#include "worker/cpu_buffer_store.h"
#include "worker/cpu_check_op.h"
#include "worker/cpu_host.h"
#include "worker/cpu_step.h"
#include "worker/cpu_weights.h"

namespace lastflop {

// Makes weights cold between steps that read too few bytes to do so themselves. Not thread-safe.
class CacheEvictor {
 public:
  // `ranks_of_cache`: the ranks of the gang whose cores share this rank's cache, itself among them.
  CacheEvictor(int64_t cache_bytes, std::vector<int> ranks_of_cache, ThreadPool& pool)
      : cache_bytes_(cache_bytes), ranks_of_cache_(std::move(ranks_of_cache)), pool_(pool) {}

  // Touches twice the last-level cache.
  absl::Status Evict();
  int64_t cache_bytes() const { return cache_bytes_; }
  const std::vector<int>& ranks_of_cache() const { return ranks_of_cache_; }

 private:
  const int64_t cache_bytes_;
  const std::vector<int> ranks_of_cache_;
  ThreadPool& pool_;  // Outlives this.
  AlignedBuffer buffer_;
};

// The CPU backend of one child process: one rank, its cores, its threads and its weights. Not
// thread-safe; arms are used by the thread that made the backend.
class CpuBackend final : public Backend {
 public:
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(const BackendOptions& options);

  absl::StatusOr<std::unique_ptr<Arm>> Prepare(const Plan& plan, const Point& point,
                                               Gang& gang) override;
  std::map<std::string, std::string> Environment() override;
  std::string DataChecksum() override;

  // For tests of the check: see AfterOp.
  void set_after_op(AfterOp after_op) { after_op_ = std::move(after_op); }

 private:
  CpuBackend(const BackendOptions& options, const std::vector<int>& allowed, RankCores cores,
             std::unique_ptr<ThreadPool> pool, double byte_budget);

  WeightData data() const { return {.seed = options_.data_seed, .zeros = options_.measure.zeros}; }
  absl::StatusOr<std::unique_ptr<CpuStep>> Load(const Plan& plan, const Point& point, int rank);
  absl::Status CheckFits(const Plan& plan, const Point& point) const;

  const BackendOptions options_;
  const RankCores cores_;
  const std::string cores_text_;  // Of all ranks.
  const double byte_budget_;
  std::unique_ptr<ThreadPool> pool_;
  CpuBufferStore store_;
  CacheEvictor evictor_;
  AfterOp after_op_;
};

}  // namespace lastflop
