#include "kernels/embedding/embedding.h"

#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

using testing::ElementsAre;

TEST(EmbeddingTest, GivesZerosForIdsOfOtherRanks) {
  const EmbeddingShape shape = {
      .num_tokens = 4, .hidden_size = 2, .vocab_begin = 10, .vocab_rows = 2};
  const std::vector<Bf16> table = Bf16s({1, 2, 3, 4});
  const std::vector<int32_t> ids = {11, 9, 10, 12};
  std::vector<float> out(8);
  EmbeddingReference(shape, ids, table, out);
  EXPECT_THAT(out, ElementsAre(3, 4, 0, 0, 1, 2, 0, 0));
}

TEST(EmbeddingTest, CopiesRowsExactlyInEveryBuild) {
  for (const NamedPool& named : EveryPool()) {
    for (const int64_t num_tokens : {0, 1, 7}) {
      const EmbeddingShape shape = {
          .num_tokens = num_tokens, .hidden_size = 37, .vocab_begin = 5, .vocab_rows = 11};
      const std::vector<Bf16> table = RandomValues(37 * 11, 1);
      std::vector<int32_t> ids;
      for (int64_t t = 0; t < num_tokens; ++t) {
        ids.push_back(static_cast<int32_t>(3 + 3 * t));
      }
      std::vector<float> reference(static_cast<size_t>(num_tokens * 37));
      std::vector<Bf16> out = Poison(num_tokens * 37);
      EmbeddingReference(shape, ids, table, reference);
      Embedding(shape, ids, table, out, *named.pool);
      EXPECT_EQ(Floats(out), reference) << named.name;
    }
  }
}

TEST(EmbeddingTest, FillsTheRowsThatTheSliceNames) {
  const std::vector<NamedPool> pools = EveryPool();
  // Draws of four weights that rows split, and rows that begin with one.
  for (const int64_t first_row : {5, 8}) {
    const WeightSlice slice = {.seed = 3,
                               .stream = 8,
                               .amplitude = 0.25f,
                               .rows_full = 9000,
                               .cols_full = 7,
                               .part_row_begin = {first_row}};
    for (const NamedPool& named : pools) {
      std::vector<Bf16> table(7 * 8000 + 3);
      FillRandomRows(slice, table, *named.pool);
      for (size_t i = 0; i < table.size(); ++i) {
        const size_t index = static_cast<size_t>(first_row) * 7 + i;
        ASSERT_EQ(table[i], ToBf16(TrueWeight(3, 8, index, 0.25f))) << named.name << " " << i;
      }
    }
  }
}

TEST(EmbeddingTest, RefusesAnEmptyTable) {
  EXPECT_FALSE(ValidateEmbedding({.num_tokens = 1, .hidden_size = 4, .vocab_rows = 0}).ok());
  EXPECT_TRUE(ValidateEmbedding({.num_tokens = 0, .hidden_size = 4, .vocab_rows = 1}).ok());
}

}  // namespace
}  // namespace lastflop
