#include "coordinator/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/trial_rules.h"
#include "tests/coordinator/some_run.h"

namespace lastflop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int kCohort = 32;

Schedule ScheduleOf(const CampaignRun& run, const std::vector<SchedulerWorker>& workers) {
  return MakeSchedule({{.run = &run}}, workers, kCohort);
}

void Accept(CampaignRun& run, size_t trial_index, int launch) {
  AttemptResult report = SuccessOf(Lease(run, trial_index, launch));
  report.trial_id = run.results.trials[trial_index].spec.trial_id;
  report.launch = launch;
  ApplyToMemory(DecideReport(run, report, 2000), run);
}

TEST(SchedulerTest, RunsAllTrialsOfACohortInOneLaunchBeforeTheNextLaunch) {
  const CampaignRun run = SomeRunOf(SomeCampaignOf(2, /*launches=*/2));  // 3 trials.
  EXPECT_THAT(OrderOfWork(run, kCohort),
              ElementsAre(WorkItem{0, 0, 0}, WorkItem{1, 0, 0}, WorkItem{2, 0, 0},
                          WorkItem{0, 0, 1}, WorkItem{1, 0, 1}, WorkItem{2, 0, 1}));
  EXPECT_THAT(OrderOfWork(run, 2),
              ElementsAre(WorkItem{0, 0, 0}, WorkItem{1, 0, 0}, WorkItem{0, 0, 1},
                          WorkItem{1, 0, 1}, WorkItem{2, 1, 0}, WorkItem{2, 1, 1}));
}

TEST(SchedulerTest, LeavesOutWhatIsAcceptedAndWhatIsOpen) {
  CampaignRun run = SomeRunOf(SomeCampaignOf(2, /*launches=*/2));
  Accept(run, 0, 0);
  Lease(run, 1, 0);
  EXPECT_THAT(OrderOfWork(run, kCohort),
              ElementsAre(WorkItem{2, 0, 0}, WorkItem{0, 0, 1}, WorkItem{2, 0, 1}));
}

TEST(SchedulerTest, PutsTrialsThatShareChildrenSideBySide) {
  Campaign campaign = SomeCampaignOf(3);
  campaign.interventions[1].set.push_back({"parallel.data", "2"});  // Needs two processes.
  const CampaignRun run = SomeRunOf(campaign);
  EXPECT_THAT(OrderOfWork(run, kCohort), ElementsAre(WorkItem{0, 0, 0}, WorkItem{1, 0, 0},
                                                     WorkItem{3, 0, 0}, WorkItem{2, 0, 0}));
}

TEST(SchedulerTest, MeasuresOneAttemptAtATimeOnACpuHost) {
  const CampaignRun run = SomeRunOf(SomeCampaignOf(3));
  EXPECT_THAT(ScheduleOf(run, {CpuWorker("w0"), CpuWorker("w1")}).leases, SizeIs(1));
  SchedulerWorker busy = CpuWorker("w0");
  busy.is_idle = false;
  busy.holds_host = true;
  EXPECT_THAT(ScheduleOf(run, {busy, CpuWorker("w1")}).leases, IsEmpty());
}

TEST(SchedulerTest, UsesOtherHostsAtTheSameTime) {
  CampaignRun run = SomeRunOf(SomeCampaignOf(3));
  run.has_machine = true;
  run.results.machine.backend = "cpu";
  run.results.machine.device_name = "some cpu";
  const Schedule schedule = ScheduleOf(run, {CpuWorker("w0", "h0"), CpuWorker("w1", "h1")});
  ASSERT_THAT(schedule.leases, SizeIs(2));
  EXPECT_EQ(schedule.leases[0].trial, 0u);
  EXPECT_EQ(schedule.leases[1].trial, 1u);
}

TEST(SchedulerTest, RunsSingleGpuAttemptsSideBySide) {
  CampaignRun run = SomeRunOf(SomeCampaignOf(3));
  run.has_machine = true;
  run.results.machine.backend = "cuda";
  run.results.machine.device_name = "some gpu";
  const Schedule schedule = ScheduleOf(run, {GpuWorker("w1", 1), GpuWorker("w0", 0)});
  ASSERT_THAT(schedule.leases, SizeIs(2));
  EXPECT_THAT(schedule.leases[0].worker_ids, ElementsAre("w0"));
  EXPECT_THAT(schedule.leases[1].worker_ids, ElementsAre("w1"));
}

TEST(SchedulerTest, AGangTakesAllItsWorkersAtOnceInOrderOfDevices) {
  const CampaignRun run = SomeRunOf(SomeCampaignOf(1, 1, /*num_ranks=*/2));
  const Schedule schedule =
      ScheduleOf(run, {GpuWorker("a", 10), GpuWorker("b", 9), GpuWorker("c", 2)});
  ASSERT_THAT(schedule.leases, SizeIs(1));
  EXPECT_THAT(schedule.leases[0].worker_ids, ElementsAre("c", "b"));
  EXPECT_EQ(schedule.leases[0].num_ranks, 2);
  EXPECT_FALSE(schedule.leases[0].shard);
}

TEST(SchedulerTest, AGangIsNeverSpreadOverHosts) {
  const CampaignRun run = SomeRunOf(SomeCampaignOf(1, 1, /*num_ranks=*/2));
  const Schedule schedule = ScheduleOf(run, {CpuWorker("w0", "h0"), CpuWorker("w1", "h1")});
  EXPECT_THAT(schedule.leases, IsEmpty());
  ASSERT_THAT(schedule.unplaceable, SizeIs(2));  // The baseline as well.
  EXPECT_EQ(schedule.unplaceable[0].reason, "needs 2 workers on one host, 1 is connected");
}

TEST(SchedulerTest, HoldsAHostFreeForAGangThatWaits) {
  Campaign campaign = SomeCampaignOf(2);
  campaign.interventions[0].set.push_back({"parallel.data", "2"});
  CampaignRun run = SomeRunOf(campaign);
  run.has_machine = true;
  run.results.machine.backend = "cuda";
  run.results.machine.device_name = "some gpu";
  Accept(run, 0, 0);
  SchedulerWorker busy = GpuWorker("w0", 0);
  busy.is_idle = false;  // Runs something on its own GPU.
  // Order of work: i1 (one rank, with the baseline's children), then the gang i0.
  Accept(run, 2, 0);
  Campaign later = SomeCampaignOf(1);
  CampaignRun second = SomeRunOf(later);
  second.has_machine = true;
  second.results.machine = run.results.machine;
  const Schedule schedule =
      MakeSchedule({{.run = &run}, {.run = &second}}, {busy, GpuWorker("w1", 1)}, kCohort);
  EXPECT_THAT(schedule.leases, IsEmpty()) << "a single attempt would keep the gang waiting";
  EXPECT_THAT(schedule.unplaceable, IsEmpty()) << "it only has to wait";
}

TEST(SchedulerTest, AShardNeedsOneWorker) {
  Campaign campaign = SomeCampaignOf(1, 1, /*num_ranks=*/8);
  campaign.fidelity = Fidelity::kShard;
  const CampaignRun run = SomeRunOf(campaign);
  const Schedule schedule = ScheduleOf(run, {CpuWorker("w0")});
  ASSERT_THAT(schedule.leases, SizeIs(1));
  EXPECT_TRUE(schedule.leases[0].shard);
  EXPECT_EQ(schedule.leases[0].num_ranks, 8);
  EXPECT_THAT(schedule.leases[0].worker_ids, SizeIs(1));
}

TEST(SchedulerTest, PrefersGpusUntilACampaignIsBound) {
  CampaignRun run = SomeRunOf(SomeCampaignOf(1));
  Schedule schedule = ScheduleOf(run, {CpuWorker("cpu", "h0"), GpuWorker("gpu", 0, "h1")});
  ASSERT_THAT(schedule.leases, SizeIs(1)) << "the second waits for the machine to be stored";
  EXPECT_THAT(schedule.leases[0].worker_ids, ElementsAre("gpu"));
  run.has_machine = true;
  run.results.machine.backend = "cpu";
  run.results.machine.device_name = "some cpu";
  schedule = ScheduleOf(run, {CpuWorker("cpu", "h0"), GpuWorker("gpu", 0, "h1")});
  ASSERT_THAT(schedule.leases, SizeIs(1));
  EXPECT_THAT(schedule.leases[0].worker_ids, ElementsAre("cpu"));
}

TEST(SchedulerTest, DoesNotMeasureAGpuMachineOnACpu) {
  Campaign campaign = SomeCampaignOf(0);
  campaign.machine_auto = false;
  campaign.machine.backend = "cuda";
  const CampaignRun run = SomeRunOf(campaign);
  const Schedule schedule = ScheduleOf(run, {CpuWorker("w0")});
  EXPECT_THAT(schedule.leases, IsEmpty());
  ASSERT_THAT(schedule.unplaceable, SizeIs(1));
  EXPECT_EQ(schedule.unplaceable[0].reason,
            "no connected worker can run it: the campaign's machine is a cuda machine");
}

TEST(SchedulerTest, OffersARefusedTrialToAnotherWorker) {
  CampaignRun run = SomeRunOf(SomeCampaignOf(0));
  const std::string attempt_id = Lease(run, 0, 0, {"w0"});
  ApplyToMemory(DecideLoss(run, attempt_id, AttemptState::kRefused, "hash", 5, {}, 2000), run);
  Schedule schedule = ScheduleOf(run, {CpuWorker("w0", "h0"), CpuWorker("w1", "h1")});
  ASSERT_THAT(schedule.leases, SizeIs(1));
  EXPECT_THAT(schedule.leases[0].worker_ids, ElementsAre("w1"));
  schedule = ScheduleOf(run, {CpuWorker("w0", "h0")});
  ASSERT_THAT(schedule.unplaceable, SizeIs(1));
  EXPECT_TRUE(schedule.unplaceable[0].only_refused);
}

TEST(SchedulerTest, RunsCommandsOnlyWhereTheyAreAllowed) {
  Campaign campaign = SomeCampaignOf(0);
  campaign.baseline.engine = "vllm bench";
  const CampaignRun run = SomeRunOf(campaign);
  SchedulerWorker worker = CpuWorker("w0");
  const Schedule nowhere = ScheduleOf(run, {worker});
  EXPECT_THAT(nowhere.leases, IsEmpty());
  ASSERT_FALSE(nowhere.unplaceable.empty());
  EXPECT_THAT(
      nowhere.unplaceable[0].reason,
      testing::HasSubstr("engine.command=vllm bench: both backends run lastflop's own step"));
  worker.allows_commands = true;
  EXPECT_THAT(ScheduleOf(run, {worker}).leases, SizeIs(1));
}

TEST(SchedulerTest, RunsAPluginOnlyWhereItIsOffered) {
  Campaign campaign = SomeCampaignOf(0);
  campaign.baseline.moe.kernel = MoeKernel::kPlugin;
  campaign.baseline.moe.plugin = "fast";
  const CampaignRun run = SomeRunOf(campaign);
  SchedulerWorker without = CpuWorker("w0", "h0");
  without.allows_commands = true;
  without.plugins = {"other"};
  SchedulerWorker with = CpuWorker("w1", "h1");
  with.plugins = {"other", "fast"};
  const Schedule schedule = ScheduleOf(run, {without, with});
  ASSERT_THAT(schedule.leases, SizeIs(1));
  EXPECT_THAT(schedule.leases[0].worker_ids, ElementsAre("w1"));
  const Schedule nowhere = ScheduleOf(run, {without});
  ASSERT_FALSE(nowhere.unplaceable.empty());
  EXPECT_THAT(nowhere.unplaceable[0].reason, testing::HasSubstr("--plugin fast=FILE"));
}

TEST(SchedulerTest, SaysNothingWhileNobodyIsConnected) {
  const CampaignRun run = SomeRunOf(SomeCampaignOf(1));
  const Schedule schedule = ScheduleOf(run, {});
  EXPECT_THAT(schedule.leases, IsEmpty());
  EXPECT_THAT(schedule.unplaceable, IsEmpty());
}

TEST(SchedulerTest, GivesNothingOutForACampaignWithoutBudget) {
  const CampaignRun run = SomeRunOf(SomeCampaignOf(1));
  EXPECT_THAT(MakeSchedule({{.run = &run, .may_lease = false}}, {CpuWorker("w0")}, kCohort).leases,
              IsEmpty());
}

}  // namespace
}  // namespace lastflop
