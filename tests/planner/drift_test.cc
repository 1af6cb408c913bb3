#include "planner/drift.h"

#include <string>
#include <vector>

#include "common/campaign.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "planner/ranking.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Intervention Claiming(std::string id, double low) {
  Intervention intervention;
  intervention.id = std::move(id);
  intervention.claim.emplace();
  intervention.claim->low = low;
  return intervention;
}

std::vector<std::string> WarningsOf(double drift, std::vector<Intervention> interventions) {
  Campaign campaign;
  campaign.points = {Point{}};
  campaign.interventions = std::move(interventions);
  BaselinePoint baseline;
  baseline.label = "decode b1 c4096";
  baseline.drift = drift;
  baseline.drift_error = 0.001;
  return DriftWarnings(campaign, {&baseline, 1});
}

TEST(DriftWarningsTest, NamesWhoClaimsLessThanTheBaselineDrifted) {
  EXPECT_THAT(WarningsOf(-0.03, {Claiming("small", 1.02), Claiming("large", 1.3)}),
              ElementsAre(AllOf(HasSubstr("-3.0%"), HasSubstr("than is claimed by small (2.0%)"))));
}

TEST(DriftWarningsTest, SaysNothingOfClaimsBelowTheMinimumEffect) {
  EXPECT_THAT(WarningsOf(0.001, {Claiming("same", 1.0), Claiming("hardly", 1.0005)}), IsEmpty());
  EXPECT_THAT(WarningsOf(-0.03, {Claiming("same", 1.0)}), IsEmpty());
}

}  // namespace
}  // namespace lastflop
