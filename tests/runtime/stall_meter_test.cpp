#include <gtest/gtest.h>

#include <strata/runtime/trace/stall_meter.h>

#include "support/manual_clock.h"

namespace strata {
namespace {

struct StallMeterTest : ::testing::Test {
  test::ManualClock clock;
  StallMeter meter{clock, nullptr};

  /// The cause that the next `ns` nanoseconds are charged to; kComputing if compute is busy.
  static constexpr int kComputing = -1;
  int charged(std::int64_t ns = 10) {
    const StallTimes before = meter.times();
    clock.advance_to(clock.now_ns() + ns);
    const StallTimes spent = meter.times() - before;
    int found = -2;
    std::int64_t sum = spent.computing_ns;
    if (spent.computing_ns == ns) found = kComputing;
    for (std::size_t i = 0; i < kStallCauses; ++i) {
      sum += spent.stalled_ns[i];
      if (spent.stalled_ns[i] == ns) found = static_cast<int>(i);
    }
    EXPECT_EQ(sum, ns) << "of every moment there is one use";
    return found;
  }
  static int of(StallCause cause) { return static_cast<int>(cause); }
};

TEST_F(StallMeterTest, FollowsTheWaitsToTheBusyStream) {
  EXPECT_EQ(charged(), of(StallCause::host));  // nothing is queued
  meter.stream_is_busy(StreamRole::compute);
  EXPECT_EQ(charged(), kComputing);
  meter.stream_is_busy(StreamRole::h2d);
  EXPECT_EQ(charged(), kComputing);  // other streams' work beside it causes no stall
  meter.stream_waits(StreamRole::compute, StreamRole::h2d);
  EXPECT_EQ(charged(), of(StallCause::h2d));
  meter.stream_waits(StreamRole::h2d, StreamRole::cpu);
  meter.stream_waits(StreamRole::cpu, StreamRole::d2h);
  meter.stream_is_busy(StreamRole::d2h);
  EXPECT_EQ(charged(), of(StallCause::d2h));
  meter.stream_is_idle(StreamRole::d2h);
  meter.stream_is_busy(StreamRole::cpu);
  EXPECT_EQ(charged(), of(StallCause::optimizer));
  meter.stream_is_busy(StreamRole::compute);
  EXPECT_EQ(charged(), kComputing);
}

TEST_F(StallMeterTest, AnIdleStreamWaitsForTheHostThread) {
  {
    const HostWaitScope reads(&meter, StallCause::nvme);
    EXPECT_EQ(charged(), of(StallCause::nvme));
    meter.stream_waits(StreamRole::compute, StreamRole::h2d);
    EXPECT_EQ(charged(), of(StallCause::nvme));  // for a copy that is not queued yet
    meter.stream_is_busy(StreamRole::h2d);
    EXPECT_EQ(charged(), of(StallCause::h2d));
    meter.stream_is_idle(StreamRole::h2d);
    meter.stream_is_idle(StreamRole::compute);
  }
  EXPECT_EQ(charged(), of(StallCause::host));
  const HostWaitScope batch(&meter, StallCause::data);
  EXPECT_EQ(charged(), of(StallCause::data));
}

TEST_F(StallMeterTest, AHostThreadWaitingForAStreamInheritsItsCause) {
  meter.stream_is_busy(StreamRole::cpu);
  const HostWaitScope norm(&meter, StreamRole::cpu);
  EXPECT_EQ(charged(), of(StallCause::optimizer));
  meter.stream_waits(StreamRole::cpu, StreamRole::d2h);
  meter.stream_is_busy(StreamRole::d2h);
  EXPECT_EQ(charged(), of(StallCause::d2h));
  meter.stream_is_idle(StreamRole::cpu);
  EXPECT_EQ(charged(), of(StallCause::host));  // the host thread is about to wake up
  {
    const HostWaitScope inner(&meter, StallCause::nvme);
    EXPECT_EQ(charged(), of(StallCause::nvme));
  }
  meter.stream_is_busy(StreamRole::cpu);
  EXPECT_EQ(charged(), of(StallCause::optimizer));  // the cause from before the inner wait
}

TEST_F(StallMeterTest, CyclicWaitsTerminate) {
  meter.stream_waits(StreamRole::compute, StreamRole::h2d);
  meter.stream_waits(StreamRole::h2d, StreamRole::compute);
  EXPECT_EQ(charged(), of(StallCause::host));
}

TEST_F(StallMeterTest, ANullMeterIsAccepted) { const HostWaitScope nobody(nullptr, StallCause::nvme); }

}  // namespace
}  // namespace strata
