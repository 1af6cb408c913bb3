#include "kernels/sample/sample_cuda.h"

#include <cmath>
#include <vector>

#include "kernels/embedding/embedding.h"
#include "kernels/embedding/embedding_cuda.h"
#include "tests/kernels/dense_case.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

// Few different values, so that equal ones are common.
std::vector<float> CoarseLogits(int64_t count) {
  std::vector<float> logits;
  for (int64_t i = 0; i < count; ++i) {
    logits.push_back(std::floor(CounterUniform(1, 2, static_cast<uint64_t>(i)) * 1000));
  }
  return logits;
}

TEST(SampleCudaTest, FindsTheFirstOfTheBest) {
  LASTFLOP_NEED_GPU();
  for (const int64_t vocab : {1, 33, 4096, 20480, 151936}) {
    for (const int64_t tokens : {1, 7}) {
      const SampleShape shape = {
          .num_tokens = tokens, .vocab_rows = vocab, .vocab_begin = 1000, .ranks = 1};
      std::vector<float> logits = CoarseLogits(tokens * vocab);
      if (vocab > 1) {
        logits[0] = NAN;
      }
      std::vector<Candidate> want(static_cast<size_t>(tokens));
      BestCandidatesReference(shape, logits, want);
      const DeviceArray<float> device_logits(logits);
      const DeviceArray<std::byte> workspace(SampleCudaWorkspaceBytes(shape));
      const DeviceArray<Candidate> best(tokens);
      const DeviceArray<int32_t> ids(tokens);
      LASTFLOP_EXPECT_OK(
          LaunchBestCandidates(shape, device_logits.get(), best.get(), workspace.get(), nullptr));
      LASTFLOP_EXPECT_OK(
          LaunchSample(shape, device_logits.get(), ids.get(), workspace.get(), nullptr));
      const std::vector<Candidate> got = best.Download();
      const std::vector<int32_t> got_ids = ids.Download();
      for (size_t t = 0; t < want.size(); ++t) {
        EXPECT_EQ(got[t].value, want[t].value) << "vocab " << vocab;
        EXPECT_EQ(got[t].token_id, want[t].token_id) << "vocab " << vocab;
        EXPECT_EQ(got_ids[t], want[t].token_id) << "vocab " << vocab;
      }
    }
  }
}

TEST(SampleCudaTest, ChoosesAmongRanksAsTheHostDoes) {
  LASTFLOP_NEED_GPU();
  const SampleShape shape = {.num_tokens = 3, .vocab_rows = 10, .ranks = 4};
  const std::vector<Candidate> candidates = {{1, 5}, {7, 6}, {NAN, 1},  {2, 15},  {7, 3}, {3, 11},
                                             {2, 9}, {0, 8}, {NAN, 22}, {NAN, 2}, {6, 1}, {3, 10}};
  std::vector<int32_t> want(3);
  ChooseTokens(shape, candidates, want);
  const DeviceArray<Candidate> device(candidates);
  const DeviceArray<int32_t> ids(3);
  LASTFLOP_EXPECT_OK(LaunchChooseTokens(shape, device.get(), ids.get(), nullptr));
  EXPECT_EQ(ids.Download(), want);
  EXPECT_EQ(want, (std::vector<int32_t>{9, 3, 10}));
}

TEST(SampleCudaTest, RefusesToSkipTheGatherOfRanks) {
  EXPECT_EQ(LaunchSample({.num_tokens = 1, .vocab_rows = 1, .ranks = 2}, nullptr, nullptr, nullptr,
                         nullptr)
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(EmbeddingCudaTest, ReadsItsRowsAndZeroesThoseOfOthers) {
  LASTFLOP_NEED_GPU();
  for (const int64_t hidden : {2048, 7168, 30}) {
    const EmbeddingShape shape = {
        .num_tokens = 5, .hidden_size = hidden, .vocab_begin = 100, .vocab_rows = 50};
    const std::vector<int32_t> ids = {100, 149, 99, 150, 120};
    const std::vector<Bf16> table = RandomValues(50 * hidden, 1);
    std::vector<float> want(static_cast<size_t>(5 * hidden));
    EmbeddingReference(shape, ids, table, want);
    const DeviceArray<int32_t> device_ids(ids);
    const DeviceArray<__nv_bfloat16> device_table(table);
    const DeviceArray<__nv_bfloat16> out(5 * hidden);
    LASTFLOP_EXPECT_OK(
        LaunchEmbedding(shape, device_ids.get(), device_table.get(), out.get(), nullptr));
    EXPECT_EQ(Floats(out.Download<Bf16>()), want);
  }
}

}  // namespace
}  // namespace lastflop
