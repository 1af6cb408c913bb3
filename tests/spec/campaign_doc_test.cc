#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

std::string ReadDocument(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CampaignDocTest, ExplainsEveryPlanField) {
  const std::string document = ReadDocument("docs/campaign.md");
  ASSERT_FALSE(document.empty());
  for (const PlanField& field : PlanFields()) {
    EXPECT_THAT(document, HasSubstr(absl::StrCat("| `", field.path, "` |")));
  }
}

// The parts of a sentence such as "none, piecewise or full" that are values.
TEST(CampaignDocTest, NamesEveryWordThatAPlanFieldTakes) {
  const std::string document = ReadDocument("docs/campaign.md");
  for (const char* const word :
       {"fp8_block",   "int4_g128",  "int4_g32_24",   "mxfp4",       "separate",
        "reference",   "cutlass",    "cublaslt",      "plugin:NAME", "column_major",
        "evict_first", "evict_last", "opportunistic", "one_shot",    "two_shot",
        "ring",        "p2p",        "piecewise",     "two_batch",   "prefill_decode",
        "all_to_one",  "balanced",   "trace",         "shard",       "predicted",
        "per_batch",   "lossy"}) {
    EXPECT_THAT(document, HasSubstr(word));
  }
}

}  // namespace
}  // namespace lastflop
