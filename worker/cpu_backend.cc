#include "worker/cpu_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/units.h"
#include "kernels/cpu/vector_isa.h"
#include "step/make_step.h"
#include "worker/cpu_arm.h"
#include "worker/cpu_step.h"
#include "worker/cpu_support.h"
#include "worker/data_checksum.h"
#include "worker/plugin_host.h"

namespace lastflop {
namespace {

constexpr double kBytesPerMib = 1024.0 * 1024.0;

double MemoryOfRank(const BackendOptions& options) {
  auto bytes = static_cast<double>(AvailableMemoryBytes());
  if (options.machine.memory_bytes > 0) {
    const auto declared = static_cast<double>(options.machine.memory_bytes);
    bytes = bytes > 0 ? std::min(bytes, declared) : declared;
  }
  return kUsableMemoryShare * bytes / options.num_ranks;
}

int64_t CacheBytes(const BackendOptions& options) {
  return options.machine.l2_bytes > 0 ? options.machine.l2_bytes : LastLevelCacheBytes();
}

// Of the ranks on the cores `allowed`, those whose first core shares a cache with that of `own`.
std::vector<int> RanksOfCache(const RankCores& own, const std::vector<int>& allowed,
                              int num_ranks) {
  const std::vector<int> of_cache = CoresOfCache(own.cores.front());
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int core = CoresOfRank(allowed, rank, num_ranks).cores.front();
    if (std::find(of_cache.begin(), of_cache.end(), core) != of_cache.end()) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

}  // namespace

absl::Status CacheEvictor::Evict() {
  const size_t bytes = 2 * static_cast<size_t>(cache_bytes_);
  if (buffer_.bytes() == 0) {
    LASTFLOP_ASSIGN_OR_RETURN(buffer_, AlignedBuffer::Create(bytes));
  }
  constexpr size_t kLine = 64;
  constexpr size_t kTaskBytes = size_t{1} << 20;
  pool_.ParallelFor(static_cast<int64_t>(bytes / kTaskBytes), [&](int64_t task, int /*thread*/) {
    std::byte* const begin = buffer_.data() + static_cast<size_t>(task) * kTaskBytes;
    for (size_t offset = 0; offset < kTaskBytes; offset += kLine) {
      begin[offset] = static_cast<std::byte>(static_cast<uint8_t>(begin[offset]) + 1U);
    }
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options) {
  return CpuBackend::Create(options);
}

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::Create(const BackendOptions& options) {
  if (options.num_ranks < 1 || options.rank < 0 || options.rank >= options.num_ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", options.num_ranks, " ranks"));
  }
  const std::vector<int> allowed = AllowedCores();
  if (allowed.empty()) {
    return absl::InternalError("the system does not say which cores this process may use");
  }
  RankCores cores = CoresOfRank(allowed, options.rank, options.num_ranks);
  LASTFLOP_ASSIGN_OR_RETURN(
      std::unique_ptr<ThreadPool> pool,
      ThreadPool::Create({.cores = cores.cores, .shared_cores = cores.shared, .isa = {}}));
  return std::unique_ptr<CpuBackend>(
      new CpuBackend(options, allowed, std::move(cores), std::move(pool), MemoryOfRank(options)));
}

// `allowed` is from before the pool pinned this thread.
CpuBackend::CpuBackend(const BackendOptions& options, const std::vector<int>& allowed,
                       RankCores cores, std::unique_ptr<ThreadPool> pool, double byte_budget)
    : options_(options),
      cores_(std::move(cores)),
      cores_text_(CoresText(allowed, options.num_ranks)),
      byte_budget_(byte_budget),
      pool_(std::move(pool)),
      store_(byte_budget),
      evictor_(CacheBytes(options), RanksOfCache(cores_, allowed, options.num_ranks), *pool_) {}

absl::Status CpuBackend::CheckFits(const Plan& plan, const Point& point) const {
  return CheckMemory(options_.model, plan, point, options_.layers_kept, byte_budget_);
}

absl::StatusOr<std::unique_ptr<Arm>> CpuBackend::Prepare(const Plan& plan, const Point& point,
                                                         Gang& gang) {
  // What every rank finds alike comes first; from the exchange below on, ranks stay together.
  LASTFLOP_RETURN_IF_ERROR(CheckCpuSupport(options_.model, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckFeasible(options_.model, plan));
  LASTFLOP_RETURN_IF_ERROR(CheckPoint(options_.model, plan, point));
  if (!options_.experts_only && plan.num_ranks() > gang.num_ranks()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the plan needs ", plan.num_ranks(), " ranks and the gang has ", gang.num_ranks()));
  }
  absl::StatusOr<std::unique_ptr<CpuStep>> step = Load(plan, point, gang.rank());
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<double> failures,
                            gang.AllGather(step.ok() ? 0.0 : 1.0));
  LASTFLOP_RETURN_IF_ERROR(step.status());
  const auto failed = std::find(failures.begin(), failures.end(), 1.0);
  if (failed != failures.end()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", failed - failures.begin(), " could not make the plan ready"));
  }
  return CpuArm::Create(*std::move(step), options_, gang, evictor_, after_op_);
}

absl::StatusOr<std::unique_ptr<CpuStep>> CpuBackend::Load(const Plan& plan, const Point& point,
                                                          int rank) {
  LASTFLOP_RETURN_IF_ERROR(CheckFits(plan, point));
  return LoadCpuStep({.model = options_.model,
                      .plan = plan,
                      .point = point,
                      .rank = rank,
                      .layers_kept = options_.layers_kept,
                      .experts_only = options_.experts_only,
                      .data = data(),
                      .plugins = options_.plugins},
                     store_, *pool_);
}

std::map<std::string, std::string> CpuBackend::Environment() {
  std::map<std::string, std::string> environment = options_.plugins == nullptr
                                                       ? std::map<std::string, std::string>{}
                                                       : options_.plugins->Environment();
  environment.merge(std::map<std::string, std::string>{
      {"backend", "cpu"},
      {"cpu", CpuModelName()},
      {"vector_isa", std::string(Describe(pool_->isa()))},
      {"cores", cores_text_},
      {"cores_shared", cores_.shared ? "yes: ranks share cores" : "no"},
      {"threads", absl::StrCat(pool_->num_threads())},
      {"last_level_cache_mib",
       absl::StrFormat("%.1f", static_cast<double>(evictor_.cache_bytes()) / kBytesPerMib)},
      {"memory_gib_of_rank", absl::StrFormat("%.1f", byte_budget_ / kBytesPerGib)},
      {"data", options_.measure.zeros ? "zeros" : "random"}});
  return environment;
}

std::string CpuBackend::DataChecksum() {
  return ChecksumOfData(options_.data_seed, options_.model.vocab_size, options_.measure.zeros);
}

}  // namespace lastflop
