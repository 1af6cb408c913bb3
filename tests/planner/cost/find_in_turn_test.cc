#include "planner/cost/find_in_turn.h"

#include <gtest/gtest.h>

#include <string>

namespace lastflop {
namespace {

TEST(FindInTurnTest, GoesOnBehindWhatWasFoundAndAround) {
  const std::string items = "abca";
  size_t next = 0;
  int num_asked = 0;
  const auto find = [&](char wanted) {
    num_asked = 0;
    return FindInTurn(items.size(), next, [&](size_t i) {
      ++num_asked;
      return items[i] == wanted;
    });
  };
  EXPECT_EQ(find('a'), 0U);
  EXPECT_EQ(find('b'), 1U);
  EXPECT_EQ(num_asked, 1) << "in order";
  EXPECT_EQ(find('a'), 3U) << "the next of two";
  EXPECT_EQ(find('b'), 1U) << "around the end";
  EXPECT_EQ(find('x'), items.size());
  EXPECT_EQ(find('c'), 2U) << "where it stood before what there is none of";
  size_t nowhere = 7;
  EXPECT_EQ(FindInTurn(0, nowhere, [](size_t) { return true; }), 0U);
}

}  // namespace
}  // namespace lastflop
