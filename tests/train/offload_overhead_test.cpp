#include <strata/train/offload_overhead.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/runtime/units.h>

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Four steps with a median of 8 s, of which 6 s are compute; the median without offloading is 7 s.
OffloadOverhead measured() {
  OffloadOverhead p;
  p.offloaded = {{9, 8, 7.5, 8}, "full"};
  p.on_device = {{7, 6, 7, 20}, "none"};
  p.times.computing_ns = 6;
  p.times.stalled_ns[static_cast<std::size_t>(StallCause::nvme)] = 1;
  p.times.stalled_ns[static_cast<std::size_t>(StallCause::h2d)] = 1;
  return p;
}
OffloadOverhead bounded() {
  OffloadOverhead p = measured();
  p.on_device = {};
  p.not_measured_reason = "there is\n\"no\" room";
  return p;
}

TEST(OffloadOverheadTest, EfficiencyIsTheMedianStepWithoutOffloadOverTheMedianStepWithIt) {
  EXPECT_DOUBLE_EQ(measured().efficiency(), 7.0 / 8);
  EXPECT_DOUBLE_EQ((StepSeconds{{3, 1, 2}, ""}.median()), 2);
  EXPECT_DOUBLE_EQ((StepSeconds{{4, 1, 2, 3}, ""}.median()), 2.5);
}

TEST(OffloadOverheadTest, ComputeTimeReplacesAnUnmeasuredStepWithoutOffload) {
  EXPECT_DOUBLE_EQ(bounded().on_device_s(), 6);
  EXPECT_DOUBLE_EQ(bounded().efficiency(), 6.0 / 8);
}

TEST(OffloadOverheadTest, JsonHasBothRunsAndSharesThatSumToTheStep) {
  const auto json = nlohmann::json::parse(offload_overhead_json(measured()));
  EXPECT_DOUBLE_EQ(json["offload_efficiency"], 0.875);
  EXPECT_TRUE(json["measured"]);
  EXPECT_EQ(json["steps"], 4);
  EXPECT_EQ(json["step_offloaded_s"],
            nlohmann::json({{"median", 8.0}, {"fastest", 7.5}, {"slowest", 9.0}, {"recompute", "full"}}));
  EXPECT_DOUBLE_EQ(json["step_on_device_s"]["median"], 7);
  EXPECT_TRUE(json["compute_alone_s"].is_null());
  double shares = json["compute_share"];
  for (const auto& [cause, share] : json["exposed_share"].items()) shares += share.get<double>();
  EXPECT_NEAR(shares, 1, 1e-5);
  EXPECT_EQ(json["exposed_share"].size(), kStallCauses);
}

TEST(OffloadOverheadTest, JsonOfAnEstimateHasTheReasonAndNoOnDeviceTimes) {
  const auto json = nlohmann::json::parse(offload_overhead_json(bounded()));
  EXPECT_FALSE(json["measured"]);
  EXPECT_EQ(json["not_measured_reason"], "there is  no  room");
  EXPECT_TRUE(json["step_on_device_s"].is_null());
  EXPECT_DOUBLE_EQ(json["compute_alone_s"], 6);
}

TEST(OffloadOverheadTest, TheTextEndsInOneSentenceThatNamesTheReference) {
  EXPECT_THAT(offload_overhead_text(measured()),
              AllOf(HasSubstr("without             7000.000    6000.000   20000.000   recompute none\n"),
                    HasSubstr("nvme                  12.5 %\n"),
                    HasSubstr("offload efficiency 0.875: a step without offloading takes 87.5 % of the time "
                              "of one with offloading; "
                              "compute took 75.0 %")));
  EXPECT_THAT(offload_overhead_text(bounded()),
              AllOf(HasSubstr("the step on the device was not measured: there is"),
                    HasSubstr("offload efficiency 0.750: a step of compute alone takes 75.0 %")));
}

TEST(OffloadOverheadTest, ASecondRunThatDoesNotFitIsReportedWithBothNumbers) {
  HostFacts facts;
  facts.total_ram_bytes = 8 * kGiB;
  facts.available_ram_bytes = 2 * kGiB;
  facts.anonymous_rss_bytes = kGiB;  // held by the run as configured
  EXPECT_EQ(reason_not_fitting(2 * kGiB, 2, facts), "");
  EXPECT_THAT(reason_not_fitting(3 * kGiB, 2, facts),
              AllOf(HasSubstr("3.0 GiB"), HasSubstr("2.0 GiB are free")));
  facts.address_space_limit_bytes = kGiB;
  EXPECT_THAT(reason_not_fitting(kGiB, 2, facts), HasSubstr("ulimit -v"));
}

}  // namespace
}  // namespace strata
