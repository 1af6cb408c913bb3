#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/plan.h"
#include "gtest/gtest.h"

namespace lastflop {

// Paths of plan fields and their values, as campaigns write them.
using Fields = std::vector<std::pair<std::string, std::string>>;

inline Plan PlanOf(const Fields& fields) {
  Plan plan;
  for (const auto& [path, value] : fields) {
    const absl::Status status = SetPlanField(path, value, plan);
    EXPECT_TRUE(status.ok()) << status;
  }
  return plan;
}

}  // namespace lastflop
