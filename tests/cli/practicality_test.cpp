#include "training/practicality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Four steps of 8 s in the median, of which 6 s are computing; 7 s without.
Practicality measured() {
  Practicality p;
  p.with = {{9, 8, 7.5, 8}, "full"};
  p.without = {{7, 6, 7, 20}, "none"};
  p.times.computing_ns = 6;
  p.times.stalled_ns[static_cast<std::size_t>(StallCause::nvme)] = 1;
  p.times.stalled_ns[static_cast<std::size_t>(StallCause::h2d)] = 1;
  return p;
}
Practicality bounded() {
  Practicality p = measured();
  p.without = {};
  p.why_not = "there is\n\"no\" room";
  return p;
}

TEST(PracticalityTest, IsTheMedianStepWithoutOverTheMedianStepWith) {
  EXPECT_DOUBLE_EQ(measured().value(), 7.0 / 8);
  EXPECT_DOUBLE_EQ((StepSeconds{{3, 1, 2}, ""}.median()), 2);
  EXPECT_DOUBLE_EQ((StepSeconds{{4, 1, 2, 3}, ""}.median()), 2.5);
}

TEST(PracticalityTest, IsThatOfComputeAloneWhereNothingElseWasMeasured) {
  EXPECT_DOUBLE_EQ(bounded().without_s(), 6);
  EXPECT_DOUBLE_EQ(bounded().value(), 6.0 / 8);
}

TEST(PracticalityTest, JsonHasBothSidesAndSharesThatMakeUpTheStep) {
  const auto json = nlohmann::json::parse(practicality_json(measured()));
  EXPECT_DOUBLE_EQ(json["practicality"], 0.875);
  EXPECT_TRUE(json["measured"]);
  EXPECT_EQ(json["steps"], 4);
  EXPECT_EQ(json["step_with_s"],
            nlohmann::json({{"median", 8.0}, {"fastest", 7.5}, {"slowest", 9.0}, {"recompute", "full"}}));
  EXPECT_DOUBLE_EQ(json["step_without_s"]["median"], 7);
  EXPECT_TRUE(json["compute_alone_s"].is_null());
  double shares = json["compute_share"];
  for (const auto& [cause, share] : json["exposed_share"].items()) shares += share.get<double>();
  EXPECT_NEAR(shares, 1, 1e-5);
  EXPECT_EQ(json["exposed_share"].size(), kStallCauses);
}

TEST(PracticalityTest, JsonOfABoundSaysWhyAndHasNoTimesOfTheOtherSide) {
  const auto json = nlohmann::json::parse(practicality_json(bounded()));
  EXPECT_FALSE(json["measured"]);
  EXPECT_EQ(json["why_not"], "there is  no  room");
  EXPECT_TRUE(json["step_without_s"].is_null());
  EXPECT_DOUBLE_EQ(json["compute_alone_s"], 6);
}

TEST(PracticalityTest, TheTextEndsInOneSentenceThatSaysWhatStandsForTheOtherSide) {
  EXPECT_THAT(practicality_text(measured()),
              AllOf(HasSubstr("without             7000.000    6000.000   20000.000   recompute none\n"),
                    HasSubstr("nvme                  12.5 %\n"),
                    HasSubstr("practicality 0.875: a step without offload takes 87.5 % of one with offload, "
                              "where compute took 75.0 %")));
  EXPECT_THAT(practicality_text(bounded()),
              AllOf(HasSubstr("not measured, since there is"),
                    HasSubstr("practicality 0.750: a step of nothing but its compute takes 75.0 %")));
}

TEST(PracticalityTest, WhatDoesNotFitBesideTheRunIsSaidWithBothNumbers) {
  HostFacts facts;
  facts.total_ram_bytes = 8 * kGiB;
  facts.available_ram_bytes = 2 * kGiB;
  facts.anonymous_rss_bytes = kGiB;  // of the run as configured
  EXPECT_EQ(why_it_does_not_fit(2 * kGiB, 2, facts), "");
  EXPECT_THAT(why_it_does_not_fit(3 * kGiB, 2, facts),
              AllOf(HasSubstr("3.0 GiB"), HasSubstr("2.0 GiB are free")));
  facts.address_space_limit_bytes = kGiB;
  EXPECT_THAT(why_it_does_not_fit(kGiB, 2, facts), HasSubstr("ulimit -v"));
}

}  // namespace
}  // namespace strata::cli
