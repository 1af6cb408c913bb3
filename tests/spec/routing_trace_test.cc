#include "spec/routing_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RoutingTraceTest, ReadsJsonAndCsv) {
  const auto json = ReadRoutingTrace("[\n\t[1, 2.5, 0],\n\t[3, 4, 5]\n]\n", "t.json");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_THAT(*json, ElementsAre(ElementsAre(1, 2.5, 0), ElementsAre(3, 4, 5)));
  const auto csv = ReadRoutingTrace(
      "layer,expert,count\r\n1,0,3\r\n1,1,4\r\n1,2,5\r\n0,1,2.5\r\n0,0,1\r\n", "t.csv");
  ASSERT_TRUE(csv.ok()) << csv.status();
  EXPECT_EQ(*csv, *json);
}

TEST(RoutingTraceTest, RefusesWhatIsNoTraceWithItsLine) {
  struct Case {
    const char* name;
    const char* text;
    const char* start;
  };
  for (const Case& c : std::vector<Case>{
           {"t.json", "{}", "t.json:1:1: (file): a trace is a list"},
           {"t.json", "[]", "t.json:1:1: (file): the trace has no layer"},
           {"t.json", "[[1, 2],\n [3]]", "t.json:1:1: [1]: has 1 experts, layer 0 has 2"},
           {"t.json", "[[1, 2],\n [3, -1]]", "t.json:2:6: [1][1]: \"-1\" must be"},
           {"t.json", "[[0, 0]]", "t.json:1:1: [0]: no expert of this layer"},
           {"t.json", "[[1, .nan]]", "t.json:1:6: [0][1]: "},
           {"t.csv", "", "t.csv:1:1: (file): the first line must be layer,expert,count"},
           {"t.csv", "layer,expert,count\n0,1\n", "t.csv:2:1: (file): \"0,1\" must be"},
           {"t.csv", "layer,expert,count\n0,1,1\n0,1,2\n", "t.csv:3:1: "},
           {"t.csv", "layer,expert,count\n0,-1,1\n", "t.csv:2:1: "},
           {"t.csv", "layer,expert,count\n0,1,inf\n", "t.csv:2:1: "},
           {"t.csv", "layer,expert,count\n9999,99999,1\n", "t.csv:1:1: (file): 10000 layers of"},
       }) {
    EXPECT_THAT(std::string(ReadRoutingTrace(c.text, c.name).status().message()),
                StartsWith(c.start));
  }
  EXPECT_EQ(ReadRoutingTraceFile("no/such.csv").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lastflop
