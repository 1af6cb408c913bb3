#include "proto/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lastflop {
namespace {

AttemptSpec SomeAttempt() {
  AttemptSpec attempt{.attempt_id = "c1-t0001-a2",
                      .trial_id = "t0001",
                      .intervention_id = "fused-moe",
                      .point_index = 2,
                      .seed = 0xFFFFFFFFFFFFFFFFull,
                      .min_pairs = 10,
                      .max_pairs = 500,
                      .max_time = std::chrono::milliseconds(1001),
                      .half_width = 0.005,
                      .confidence = 0.95,
                      .breakdown = true,
                      .deadline = std::chrono::milliseconds(90000)};
  attempt.baseline.parallel.tensor = 2;
  attempt.variant = attempt.baseline;
  attempt.variant.moe.kernel = MoeKernel::kFused;
  attempt.variant.process_env = {{"NCCL_ALGO", "Ring, \"Tree\"\n"}};
  return attempt;
}

AttemptResult SomeResult() {
  AttemptResult result;
  result.attempt_id = "a1";
  result.trial_id = "t0001";
  result.launch = 2;
  result.samples.push_back({.pair = {.launch = 2,
                                     .draw = 7,
                                     .baseline_us = 10.5,
                                     .variant_us = 9.25,
                                     .throttled = true,
                                     .variant_throttled = true},
                            .variant_first = true,
                            .baseline_wait_us = 0.5,
                            .variant_wait_us = 0.25,
                            .unique_experts = 59.5,
                            .imbalance = 1.25});
  result.check_before = {.ok = true, .max_error = 0.01, .tolerance = 0.02, .detail = "layer 0"};
  result.check_after = {.ok = false, .error_to_baseline = 0.1, .changed_routes = 0.2};
  result.breakdown.push_back(
      {.category = OpCategory::kMoe, .op = "moe.gate_up", .us = 5, .count = 48, .floor_us = 4});
  result.breakdown_method = "host timeline";
  result.breakdown_step_us = 11;
  result.effective_baseline = "parallel.tensor=2\n";
  result.effective_variant = "parallel.tensor=1\n";
  result.effective_note = "ranks share cores";
  result.fidelity = Fidelity::kShard;
  result.warm = true;
  result.data_seed = 1ull << 63;
  result.data_checksum = "0123456789abcdef";
  result.sampling_s = 1.5;
  result.setup_s = 2.5;
  result.capture_us = 3.5;
  result.environment = {{"device", "cpu"}};
  result.warnings = {"one", "two"};
  return result;
}

TEST(CodecTest, ARoundTripOfAnAttemptLosesNothing) {
  const AttemptSpec attempt = SomeAttempt();
  const absl::StatusOr<AttemptSpec> decoded = FromProto(ToProto(attempt));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->attempt_id, attempt.attempt_id);
  EXPECT_EQ(decoded->trial_id, attempt.trial_id);
  EXPECT_EQ(decoded->intervention_id, attempt.intervention_id);
  EXPECT_EQ(decoded->point_index, attempt.point_index);
  EXPECT_EQ(decoded->baseline, attempt.baseline);
  EXPECT_EQ(decoded->variant, attempt.variant);
  EXPECT_EQ(decoded->seed, attempt.seed);
  EXPECT_EQ(decoded->min_pairs, attempt.min_pairs);
  EXPECT_EQ(decoded->max_pairs, attempt.max_pairs);
  EXPECT_EQ(decoded->max_time, attempt.max_time);
  EXPECT_EQ(decoded->half_width, attempt.half_width);
  EXPECT_EQ(decoded->confidence, attempt.confidence);
  EXPECT_EQ(decoded->breakdown, attempt.breakdown);
  EXPECT_EQ(decoded->deadline, attempt.deadline);
}

TEST(CodecTest, RefusesAPlanWhoseHashDisagrees) {
  // What a worker sees whose binary dropped a field that the sender hashed.
  v1::AttemptSpec message = ToProto(SomeAttempt());
  message.mutable_variant()->set_hash("0000000000000000");
  EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CodecTest, RefusesAPlanFieldItDoesNotKnow) {
  v1::AttemptSpec message = ToProto(SomeAttempt());
  message.mutable_variant()->mutable_text()->append("moe.from_the_future=1\n");
  EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CodecTest, ARoundTripOfAResultLosesNothing) {
  const v1::AttemptResult message = ToProto(SomeResult());
  const absl::StatusOr<AttemptResult> decoded = FromProto(message);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  // Every field of the message is set above, so equal messages mean equal results.
  EXPECT_EQ(ToProto(*decoded).DebugString(), message.DebugString());
  EXPECT_EQ(decoded->samples[0].pair.variant_us, 9.25);
  EXPECT_EQ(decoded->environment.at("device"), "cpu");
}

TEST(CodecTest, TellsACheckThatDidNotRunFromOneThatFailed) {
  AttemptResult result = SomeResult();
  result.check_before = {.ok = false};
  result.check_after = {.ran = false};
  const absl::StatusOr<AttemptResult> decoded = FromProto(ToProto(result));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(decoded->check_before.ran);
  EXPECT_FALSE(decoded->check_after.ran);
}

TEST(CodecTest, KeepsAFailureWithItsRank) {
  AttemptResult result = SomeResult();
  result.failure = {.kind = FailureKind::kCrashed, .message = "signal 9", .rank = 1};
  const absl::StatusOr<AttemptResult> decoded = FromProto(ToProto(result));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_TRUE(decoded->failure.has_value());
  EXPECT_EQ(decoded->failure->kind, FailureKind::kCrashed);
  EXPECT_EQ(decoded->failure->message, "signal 9");
  EXPECT_EQ(decoded->failure->rank, 1);
}

TEST(CodecTest, RefusesNumbersThatAreNotFinite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    v1::AttemptResult message = ToProto(SomeResult());
    message.mutable_samples(0)->set_variant_us(bad);
    const absl::Status status = FromProto(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("variant_us"), absl::string_view::npos) << status;
  }
}

TEST(CodecTest, RefusesWordsItDoesNotKnow) {
  v1::AttemptResult message = ToProto(SomeResult());
  message.set_fidelity("exact");
  EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kInvalidArgument);
  message = ToProto(SomeResult());
  message.mutable_breakdown(0)->set_category("misc");
  EXPECT_EQ(FromProto(message).status().code(), absl::StatusCode::kInvalidArgument);
  v1::Failure failure;  // The unset kind is no kind.
  EXPECT_EQ(FromProto(failure).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CodecTest, SendsForeignBytesAsValidUtf8) {
  AttemptResult result = SomeResult();
  result.failure = {.kind = FailureKind::kCrashed, .message = "stderr: \xFF\xFE"};
  std::string wire;
  ASSERT_TRUE(ToProto(result).SerializeToString(&wire));
  v1::AttemptResult received;
  ASSERT_TRUE(received.ParseFromString(wire));
  EXPECT_EQ(received.failure().message(), "stderr: ??");
}

TEST(CodecTest, RefusesAPlaceOutsideItsGang) {
  const GangPlace place{.rank = 1, .num_ranks = 2, .rendezvous = "/tmp/x", .shard = true};
  const absl::StatusOr<GangPlace> decoded = FromProto(ToProto(place));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->rank, 1);
  EXPECT_EQ(decoded->num_ranks, 2);
  EXPECT_EQ(decoded->rendezvous, "/tmp/x");
  EXPECT_TRUE(decoded->shard);
  EXPECT_FALSE(FromProto(ToProto(GangPlace{.rank = 2, .num_ranks = 2})).ok());
}

TEST(CodecTest, ARoundTripOfALaunchLosesNothing) {
  const LaunchSpec launch{.launch_key = "c1/0/1",
                          .campaign_id = "c1",
                          .launch = 1,
                          .campaign_json = "{}",
                          .data_seed = 42,
                          .env = {{"A", "1"}, {"B", ""}}};
  const absl::StatusOr<LaunchSpec> decoded = FromProto(ToProto(launch));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->launch_key, "c1/0/1");
  EXPECT_EQ(decoded->campaign_id, "c1");
  EXPECT_EQ(decoded->launch, 1);
  EXPECT_EQ(decoded->campaign_json, "{}");
  EXPECT_EQ(decoded->data_seed, 42u);
  EXPECT_EQ(decoded->env, launch.env);
}

}  // namespace
}  // namespace lastflop
