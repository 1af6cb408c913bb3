// The programs around a campaign: what they say when something is not there, when the user leaves,
// and what a database still tells.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/tiny_campaign.h"

namespace lastflop {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr char kLong[] = "launches: 3, min_pairs: 30, max_time: 3s";

std::string StateIn(const TestFolder& folder, const std::string& db) {
  Program list(folder.path(), "lastflop", {"list", "--db", db, "-o", "json"});
  EXPECT_EQ(list.Wait(), 0) << list.Err();
  return json::parse(list.Out()).at(0).at("state").get<std::string>();
}

TEST(ProgramsTest, AWorkerSaysThatItReachesNoCoordinator) {
  const TestFolder folder;
  const std::string address = "unix:" + folder.path() + "/nobody";
  Program worker(folder.path(), "lastflop-worker", {"--server", address, "--device", "cpu:0"});
  EXPECT_TRUE(worker.WaitForErr("event=no_coordinator address=" + address + " reason="))
      << worker.Err();
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), 0);
}

TEST(ProgramsTest, ADeviceThatIsNotThereIsAUsageErrorThatSaysWhatIs) {
  const TestFolder folder;
  WriteTinyCampaign(folder, kTinyInterventions);  // For its model.
  for (const std::string device : {"cpu:x", "cpu:99999", "cuda:99"}) {
    Program worker(folder.path(), "lastflop-worker",
                   {"--server", "unix:" + folder.path() + "/s", "--device", device});
    EXPECT_EQ(worker.Wait(std::chrono::seconds(20)), 2) << device;
    EXPECT_THAT(worker.Err(), HasSubstr("this host has cpu:0 to cpu:"));
    Program bench(folder.path(), "lastflop",
                  {"kernels", "bench", "--device", device, "--model",
                   folder.path() + "/models/tiny.json", "--batch", "1", "--samples", "1"});
    EXPECT_EQ(bench.Wait(std::chrono::seconds(60)), 2) << device;
    EXPECT_THAT(bench.Err(), HasSubstr("this host has cpu:0 to cpu:"));
  }
}

TEST(ProgramsTest, ASecondCoordinatorOnAPortSaysSoInLinesOfItsOwn) {
  const TestFolder folder;
  Program first(folder.path(), "lastflopd",
                {"--listen", "127.0.0.1:0", "--db", folder.path() + "/a.db"});
  const std::string before = "event=listening address=";
  ASSERT_TRUE(first.WaitForErr(before)) << first.Err();
  const std::string said = first.Err();
  const size_t begin = said.find(before) + before.size();
  const std::string address = said.substr(begin, said.find(' ', begin) - begin);
  Program second(folder.path(), "lastflopd",
                 {"--listen", address, "--db", folder.path() + "/b.db"});
  EXPECT_EQ(second.Wait(std::chrono::seconds(60)), 2);
  const std::string err = second.Err();
  EXPECT_THAT(err, HasSubstr("event=cannot_serve"));
  // Nothing of gRPC's beside it: every line is an event of lastflop's.
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line, HasSubstr(" event=")) << err;
  }
}

TEST(ProgramsTest, ACoordinatorWithNoAddressMakesNoDatabase) {
  const TestFolder folder;
  const std::string db = folder.path() + "/a.db";
  for (const char* listen : {"foo", "127.0.0.1:99999", "0.0.0.0:0"}) {
    Program coordinator(folder.path(), "lastflopd", {"--listen", listen, "--db", db});
    EXPECT_EQ(coordinator.Wait(std::chrono::seconds(60)), 2) << listen;
    EXPECT_THAT(coordinator.Err(), HasSubstr(std::string("--listen ") + listen));
    EXPECT_FALSE(std::filesystem::exists(db)) << listen;
  }
}

TEST(ProgramsTest, ARunWhoseTerminalHangsUpIsCancelledAndSaysHowToGoOn) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(folder, kTinyInterventions, kLong);
  const std::string db = folder.path() + "/r.db";
  Program run(folder.path(), "lastflop", {"run", file, "--db", db});
  ASSERT_TRUE(run.WaitForErr("trials")) << run.Err();
  run.Signal(SIGHUP);
  EXPECT_EQ(run.Wait(), 130) << run.Err();
  EXPECT_THAT(run.Err(), HasSubstr("lastflop resume"));
  EXPECT_EQ(StateIn(folder, db), "cancelled");
}

TEST(ProgramsTest, ARunThatNobodyReadsAnyMoreIsCancelled) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(folder, kTinyInterventions, kLong);
  const std::string db = folder.path() + "/r.db";
  const std::string command = std::string("'") + std::getenv("LASTFLOP_BIN_DIR") +
                              "/lastflop' run '" + file + "' --db '" + db +
                              "' 2>&1 | head -n 1 > '" + folder.path() + "/first'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(StateIn(folder, db), "cancelled");
}

TEST(ProgramsTest, ADatabaseTellsItsLogsWorkersAndWhatWasNotMeasured) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(folder, kTinyInterventions);
  const std::string db = folder.path() + "/r.db";
  Program run(folder.path(), "lastflop", {"run", file, "--db", db});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  EXPECT_THAT(run.Err(), HasSubstr("graphs unsupported: "));

  Program workers(folder.path(), "lastflop", {"workers", "--db", db, "-o", "json"});
  ASSERT_EQ(workers.Wait(), 0) << workers.Err();
  EXPECT_EQ(json::parse(workers.Out()).at(0).at("worker"), "local-0");
  Program logs(folder.path(), "lastflop", {"logs", "--db", db});
  EXPECT_EQ(logs.Wait(), 0) << logs.Err();
  Program none(folder.path(), "lastflop", {"logs"});
  EXPECT_EQ(none.Wait(), 2);
  EXPECT_THAT(none.Err(), HasSubstr("--db FILE"));

  Program list(folder.path(), "lastflop", {"list", "--db", db, "-o", "json"});
  ASSERT_EQ(list.Wait(), 0) << list.Err();
  const json line = json::parse(list.Out()).at(0);
  EXPECT_GE(line.at("unmeasured").get<int>(), 1) << line.dump();
  EXPECT_EQ(line.at("unmeasured").get<int>() + line.at("done").get<int>(),
            line.at("trials").get<int>());
  Program show(folder.path(), "lastflop", {"show", "--db", db, "-o", "json"});
  ASSERT_EQ(show.Wait(), 0) << show.Err();
  for (const json& trial : json::parse(show.Out())) {
    if (trial.at("intervention") == "graphs") {
      EXPECT_EQ(trial.at("state"), "unsupported");
    }
  }

  Program resumed(folder.path(), "lastflop", {"resume", "--db", db});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.Err();
  EXPECT_THAT(resumed.Err(), Not(HasSubstr(" trials"))) << "progress of a run that is long over";
}

}  // namespace
}  // namespace lastflop
