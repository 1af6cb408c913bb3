#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

std::unique_ptr<ThreadPool> Pool(int num_threads, bool shared_cores) {
  return ThreadPool::Create({.cores = std::vector<int>(static_cast<size_t>(num_threads), -1),
                             .shared_cores = shared_cores})
      .value();
}

TEST(ThreadPoolTest, RunsEveryTaskExactlyOnceInEveryCall) {
  for (const int num_threads : {1, 2, 5}) {
    for (const bool shared_cores : {false, true}) {
      const std::unique_ptr<ThreadPool> pool = Pool(num_threads, shared_cores);
      for (const int64_t num_tasks : {0, 1, 2, 7, 1000}) {
        std::vector<std::atomic<int>> runs(static_cast<size_t>(num_tasks));
        pool->ParallelFor(num_tasks, [&](int64_t task, int thread) {
          EXPECT_LT(thread, num_threads);
          runs[static_cast<size_t>(task)].fetch_add(1);
        });
        for (const std::atomic<int>& run : runs) {
          ASSERT_EQ(run.load(), 1);
        }
      }
    }
  }
}

TEST(ThreadPoolTest, MakesResultsOfWorkersVisibleOverManyCalls) {
  const std::unique_ptr<ThreadPool> pool = Pool(3, /*shared_cores=*/true);
  std::vector<int64_t> values(64);
  for (int64_t call = 0; call < 500; ++call) {
    pool->ParallelFor(64, [&](int64_t task, int) { values[static_cast<size_t>(task)] += task; });
  }
  for (int64_t i = 0; i < 64; ++i) {
    ASSERT_EQ(values[static_cast<size_t>(i)], 500 * i);
  }
}

TEST(ThreadPoolTest, LetsNoThreadPassABarrierBeforeAllHaveCome) {
  const std::unique_ptr<ThreadPool> pool = Pool(3, /*shared_cores=*/true);
  for (int call = 0; call < 50; ++call) {
    std::atomic<int> arrived = 0;
    std::atomic<int> wrong = 0;
    pool->RunOnAll([&](int) {
      for (int phase = 1; phase <= 4; ++phase) {
        arrived.fetch_add(1);
        pool->Barrier();
        if (arrived.load() < 3 * phase) {
          wrong.fetch_add(1);
        }
        pool->Barrier();
      }
    });
    ASSERT_EQ(wrong.load(), 0);
  }
}

TEST(ThreadPoolTest, CountsEachPhasesTasksFromZeroInEveryCall) {
  const std::unique_ptr<ThreadPool> pool = Pool(2, /*shared_cores=*/false);
  for (int call = 0; call < 3; ++call) {
    std::atomic<int64_t> sum = 0;
    pool->RunOnAll([&](int) {
      for (const int counter : {0, 1}) {
        for (int64_t i = pool->NextTask(counter); i < 10; i = pool->NextTask(counter)) {
          sum.fetch_add(i);
        }
      }
    });
    EXPECT_EQ(sum.load(), 90);
  }
}

TEST(ThreadPoolTest, GivesEveryThreadScratchOfItsOwn) {
  const std::unique_ptr<ThreadPool> pool = Pool(2, /*shared_cores=*/false);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->Scratch(1)) % 64, 0u);
  EXPECT_GE(pool->Scratch(1) - pool->Scratch(0), static_cast<ptrdiff_t>(ThreadPool::kScratchBytes));
}

TEST(ThreadPoolTest, RefusesCoresThatAreNotThere) {
  EXPECT_EQ(ThreadPool::Create({.cores = std::vector<int>()}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status status = ThreadPool::Create({.cores = {100000}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("100000"), absl::string_view::npos);
}

}  // namespace
}  // namespace lastflop
