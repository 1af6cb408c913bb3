#include "kernels/sample/sample.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

using testing::ElementsAre;

TEST(SampleTest, ChoosesTheLowestOfTheLargestByHand) {
  const SampleShape shape = {.num_tokens = 2, .vocab_rows = 3, .vocab_begin = 100};
  std::vector<Candidate> best(2);
  BestCandidatesReference(shape, std::vector<float>{1, 5, 5, NAN, -2, -3}, best);
  EXPECT_EQ(best[0].token_id, 101);
  EXPECT_EQ(best[0].value, 5);
  EXPECT_EQ(best[1].token_id, 101);
}

TEST(SampleTest, AgreesWithItsReferenceInEveryBuildAndSize) {
  for (const NamedPool& named : EveryPool()) {
    for (const int64_t num_tokens : {0, 1, 3, 40}) {
      for (const int64_t rows : {1, 7, 33, 40'001}) {
        const SampleShape shape = {.num_tokens = num_tokens, .vocab_rows = rows, .vocab_begin = 5};
        // Few different values: the largest comes often.
        const std::vector<float> logits = Floats(SmallIntegers(num_tokens * rows, 1, 50));
        std::vector<Candidate> reference(static_cast<size_t>(num_tokens));
        std::vector<Candidate> best(static_cast<size_t>(num_tokens));
        BestCandidatesReference(shape, logits, reference);
        BestCandidates(shape, logits, best, *named.pool);
        for (size_t t = 0; t < best.size(); ++t) {
          EXPECT_EQ(best[t].token_id, reference[t].token_id) << named.name << " rows=" << rows;
          EXPECT_EQ(best[t].value, reference[t].value);
        }
      }
    }
  }
}

TEST(SampleTest, FindsANumberAmongNans) {
  for (const NamedPool& named : EveryPool()) {
    std::vector<float> logits(100, NAN);
    logits[70] = -3;
    std::vector<Candidate> best(1);
    BestCandidates({.num_tokens = 1, .vocab_rows = 100}, logits, best, *named.pool);
    EXPECT_EQ(best[0].token_id, 70) << named.name;
  }
}

TEST(SampleTest, ChoosesOverRanksWithTheLowerIdAmongEquals) {
  const SampleShape shape = {.num_tokens = 3, .vocab_rows = 10, .ranks = 2};
  const std::vector<Candidate> candidates = {{2, 7}, {1, 3}, {4, 9}, {3, 12}, {1, 11}, {4, 8}};
  std::vector<int32_t> token_ids(3);
  ChooseTokens(shape, candidates, token_ids);
  EXPECT_THAT(token_ids, ElementsAre(12, 3, 8));
}

TEST(SampleTest, RefusesAnEmptyVocabulary) {
  EXPECT_FALSE(ValidateSample({.num_tokens = 1, .vocab_rows = 0}).ok());
}

}  // namespace
}  // namespace lastflop
