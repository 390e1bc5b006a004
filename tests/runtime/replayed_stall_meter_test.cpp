#include "trace/replayed_stall_meter.h"

#include <gtest/gtest.h>

#include "support/manual_clock.h"

namespace strata::detail {
namespace {

struct ReplayedStallMeterTest : ::testing::Test {
  test::ManualClock clock;
  int collected = 0;
  ReplayedStallMeter meter{clock, nullptr, [this] { ++collected; }};
};

TEST_F(ReplayedStallMeterTest, ChangesApplyInTimeOrderHoweverTheyAreReported) {
  meter.idle(StreamRole::compute, 70);
  meter.busy(StreamRole::h2d, 5);
  meter.busy(StreamRole::compute, 30);
  meter.waits(StreamRole::compute, StreamRole::h2d, 10);
  meter.idle(StreamRole::h2d, 25);
  EXPECT_EQ(meter.times().computing_ns, 0);
  meter.apply_until(100);
  const StallTimes times = meter.times();
  EXPECT_EQ(times.computing_ns, 40);
  EXPECT_EQ(times.of(StallCause::h2d), 15);   // from 10 to 25
  EXPECT_EQ(times.of(StallCause::host), 45);  // before 10, from 25 to 30, and at the end
  EXPECT_EQ(collected, 2);
}

TEST_F(ReplayedStallMeterTest, LaterChangesStayPending) {
  meter.busy(StreamRole::compute, 10);
  meter.idle(StreamRole::compute, 50);
  meter.apply_until(30);
  EXPECT_EQ(meter.times().computing_ns, 20);
  meter.apply_until(60);
  EXPECT_EQ(meter.times().computing_ns, 40);
  EXPECT_EQ(meter.times().of(StallCause::host), 20);
}

TEST_F(ReplayedStallMeterTest, HostChangesAreStampedByTheClock) {
  clock.advance_to(20);
  {
    const HostWaitScope reads(&meter, StallCause::nvme);
    clock.advance_to(50);
    const HostWaitScope inner(&meter, StallCause::data);
    clock.advance_to(60);
  }
  meter.busy(StreamRole::compute, 40);
  meter.idle(StreamRole::compute, 45);
  meter.apply_until(100);
  EXPECT_EQ(meter.times().of(StallCause::nvme), 25);
  EXPECT_EQ(meter.times().of(StallCause::data), 10);
  EXPECT_EQ(meter.times().computing_ns, 5);
  EXPECT_EQ(meter.times().of(StallCause::host), 60);
}

TEST_F(ReplayedStallMeterTest, ChangesPastTheCapacityAreAppliedEarly) {
  for (int i = 0; i < 100'000; ++i) {
    meter.busy(StreamRole::compute, 10 * i);
    meter.idle(StreamRole::compute, 10 * i + 4);
  }
  EXPECT_GT(meter.times().computing_ns, 200'000);
  meter.apply_until(1'000'000);
  EXPECT_EQ(meter.times().computing_ns, 400'000);
}

}  // namespace
}  // namespace strata::detail
