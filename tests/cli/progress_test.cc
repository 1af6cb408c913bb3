#include "cli/progress.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace lastflop {
namespace {

Event Running() {
  Event event;
  event.kind = "trial";
  event.trial_id = "t3";
  event.intervention_id = "fused";
  event.state = "running";
  event.summary.num_trials = 24;
  event.summary.num_done = 10;
  event.summary.num_failed = 1;
  event.summary.num_lost_out = 1;
  event.current = "fused at decode b64 c4096";
  event.best = "columns 1.21x";
  event.seconds_left = 41.4;
  return event;
}

TEST(ProgressTextTest, CountsWhatWasDoneAndNamesWhatEndedWithoutIt) {
  EXPECT_EQ(
      ProgressText(Running()),
      "11/24 trials, 1 lost out · fused at decode b64 c4096 · best columns 1.21x · 41 s left");
  Event cancelled;
  cancelled.summary.num_trials = 6;
  cancelled.summary.num_done = 2;
  cancelled.summary.num_cancelled = 4;
  EXPECT_EQ(ProgressText(cancelled), "2/6 trials, 4 cancelled");
}

TEST(ProgressTextTest, SaysNothingOfWhatIsNotKnown) {
  Event event;
  event.summary.num_trials = 8;
  EXPECT_EQ(ProgressText(event), "0/8 trials");
  event.seconds_left = 200;
  EXPECT_EQ(ProgressText(event), "0/8 trials · 3 min 20 s left");
}

TEST(ProgressTextTest, SaysWhoseMeasurementIsWaitedFor) {
  Event event = Running();
  event.kind = "progress";
  event.state = "sampling";
  const std::string usual = ProgressText(event);
  EXPECT_EQ(usual, ProgressText(Running()));
  event.state = "waiting for device cpu:0, held by pid 42 (lastflop-worker)";
  EXPECT_EQ(ProgressText(event),
            "11/24 trials, 1 lost out · waiting for device cpu:0, held by pid 42 (lastflop-worker) "
            "· fused at "
            "decode b64 c4096 · best columns 1.21x · 41 s left");
}

TEST(ProgressPrinterTest, APipeGetsALineForEachChangeAndNoControlCharacters) {
  std::ostringstream err;
  {
    ProgressPrinter progress(err, /*is_terminal=*/false, 120);
    progress.Show(Running());
    progress.Show(Running());  // Nothing new.
    Event ended = Running();
    ended.state = "failed";
    ended.message = "signal 9";
    progress.Show(ended);
  }
  EXPECT_EQ(
      err.str(),
      "11/24 trials, 1 lost out · fused at decode b64 c4096 · best columns 1.21x · 41 s left\n"
      "11/24 trials, 1 lost out · fused at decode b64 c4096 · best columns 1.21x · 41 s left · t3 "
      "fused "
      "failed: signal 9\n");
}

TEST(ProgressPrinterTest, ATerminalGetsOneLineThatIsRewrittenAndEnded) {
  std::ostringstream err;
  {
    ProgressPrinter progress(err, /*is_terminal=*/true, 27);
    progress.Show(Running());
    progress.Show(Running());
    EXPECT_EQ(err.str().find('\n'), std::string::npos);
    progress.EndLine();
    progress.EndLine();  // There is none any more.
  }
  // 26 columns, counted by characters: the middle dot has two bytes.
  EXPECT_EQ(err.str(), "\r\033[K11/24 trials, 1 lost out ·\r\033[K11/24 trials, 1 lost out ·\n");
}

}  // namespace
}  // namespace lastflop
