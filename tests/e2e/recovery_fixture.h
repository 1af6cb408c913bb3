#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/campaign_results.h"
#include "common/campaign_summary.h"
#include "tests/e2e/program.h"
#include "tests/e2e/tiny_campaign.h"

namespace lastflop {

// Polls, as the processes that are waited for have nothing to block on.
bool Eventually(const std::function<bool()>& is_true,
                std::chrono::seconds timeout = std::chrono::seconds(120));

// A coordinator and its workers as separate programs on a Unix socket. Sampling always takes its
// whole time, so that there is a middle to break something in.
class RecoveryTest : public testing::Test {
 protected:
  void StartCoordinator();
  // "w1" runs on cpu:1.
  void StartWorker(const std::string& id);

  // `max_time`: how long an attempt samples.
  void Submit(const std::string& max_time = "400ms") { SubmitWith(max_time, {}); }
  void SubmitWith(const std::string& max_time, const std::vector<std::string>& flags,
                  int max_attempts = 3);

  CampaignResults Results() const;
  int NumDone() const;
  int NumIn(AttemptState state) const;
  // Whether some attempt of a worker is being run.
  bool IsMeasuring(const std::string& id) const;
  // Calls `strike` with the worker of rank `rank` of each running attempt in turn, until
  // `is_broken`: an attempt may end between the look and the blow. An attempt is hit again until
  // `strike` says that it has been.
  bool StrikeUntil(const std::function<bool()>& is_broken, size_t rank,
                   const std::function<bool(const std::string& worker_id)>& strike) const;
  bool WaitForEnd() const;

  // Every trial once, one accepted attempt each, and the file sound.
  void ExpectEveryTrialOnce() const;

  std::string server() const { return "unix:" + folder_.path() + "/socket"; }
  std::string db() const { return folder_.path() + "/x.db"; }

  const TestFolder folder_;
  std::unique_ptr<Program> coordinator_;
  std::map<std::string, std::unique_ptr<Program>> workers_;
};

}  // namespace lastflop
