// Failures that only a ring can cause, on the fake ring.
#include <gtest/gtest.h>

#include <cerrno>
#include <latch>
#include <semaphore>

#include <strata/runtime/str.h>

#include "store_fixture.h"
#include "support/child.h"

namespace strata::test {
namespace {

class RingIoBackendTest : public testing::Test {
 protected:
  void expect_round_trips(NvmeStore& store) {
    for (std::uint64_t id = 1; id <= 4; ++id) {
      must(write_and_wait(store, id, AlignedBuffer(kSlotBytes, id)));
      must(read_and_wait(store, id, read_));
      ASSERT_TRUE(read_ == AlignedBuffer(kSlotBytes, id)) << "id " << id;
    }
  }
  void answer_op(std::uint64_t nth, int result) {
    fixture_.ring().on_op = [=](const detail::RingOp&, std::uint64_t n) {
      return n == nth ? result : RingFaults::kExecute;
    };
  }
  StoreFixture fixture_{TestIoBackend::fake_ring, 5};
  AlignedBuffer first_{kSlotBytes, 1};
  AlignedBuffer read_{kSlotBytes};
};

TEST_F(RingIoBackendTest, EveryOtherOperationMayReturnEagain) {
  fixture_.ring().on_op = [](const detail::RingOp&, std::uint64_t n) {
    return n % 2 == 0 ? -EAGAIN : RingFaults::kExecute;
  };
  const auto store = fixture_.make();
  expect_round_trips(*store);
  EXPECT_GT(store->counters().resubmissions, 8u);
}

TEST_F(RingIoBackendTest, EagainFromEverythingForAWhileIsSurvivedWithNothingInFlight) {
  fixture_.ring().on_op = [](const detail::RingOp&, std::uint64_t n) {
    return n <= 40 ? -EAGAIN : RingFaults::kExecute;
  };
  expect_round_trips(*fixture_.make());
}

TEST_F(RingIoBackendTest, InterruptedAndCancelledOperationsAreRepeated) {
  fixture_.ring().on_op = [](const detail::RingOp&, std::uint64_t n) {
    return n == 2 ? -EINTR : n == 3 ? -ECANCELED : n == 4 ? -EBUSY : RingFaults::kExecute;
  };
  const auto store = fixture_.make();
  expect_round_trips(*store);
  EXPECT_EQ(store->counters().resubmissions, 3u);
}

TEST_F(RingIoBackendTest, EndlessEagainBecomesAnError) {
  fixture_.ring().on_op = [](const detail::RingOp& op, std::uint64_t) {
    return op.write ? RingFaults::kExecute : -EAGAIN;
  };
  const auto store = fixture_.make({.classes = {{4096, 2}}});
  const AlignedBuffer small(4096, 1);
  must(write_and_wait(*store, 1, small));
  const Status status = read_and_wait(*store, 1, small);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_NE(status.message().find("EAGAIN"), std::string_view::npos) << status.message();
}

TEST_F(RingIoBackendTest, RefusedSubmissionsAreRepeated) {
  fixture_.ring().on_enter = [](std::uint64_t n) { return n % 3 == 0 ? 0 : n % 3 == 1 ? -EAGAIN : -EBUSY; };
  expect_round_trips(*fixture_.make());
}

TEST_F(RingIoBackendTest, InterruptedWaitsAreRepeated) {
  fixture_.ring().on_enter = [](std::uint64_t n) { return n % 2 == 0 ? 0 : -EINTR; };
  expect_round_trips(*fixture_.make());
}

TEST_F(RingIoBackendTest, CompletionsInAnyOrderGiveTheSameBytes) {
  fixture_.ring().shuffle = true;
  expect_round_trips(*fixture_.make());
}

TEST_F(RingIoBackendTest, RepeatedCompletionsAreDroppedAndCounted) {
  fixture_.ring().duplicate = true;
  fixture_.ring().shuffle = true;
  fixture_.ring().capacity = 3;
  const auto store = fixture_.make();
  expect_round_trips(*store);
  EXPECT_GT(store->counters().stray_completions, 16u);
}

TEST_F(RingIoBackendTest, InFlightNeverExceedsTheCapacity) {
  fixture_.ring().capacity = 1;
  const auto store = fixture_.make({.queue_depth = 64});
  expect_round_trips(*store);
  EXPECT_EQ(fixture_.stats().max_in_flight, 1u);
}

TEST_F(RingIoBackendTest, OneDirectionTakesHalfOfTheRing) {
  fixture_.ring().capacity = 6;
  const auto store = fixture_.make({.queue_depth = 64});
  expect_round_trips(*store);
  EXPECT_EQ(fixture_.stats().max_in_flight, 3u);
}

TEST_F(RingIoBackendTest, ReadThatEndsEarlyIsCorrupt) {
  const auto store = [&] {
    fixture_.ring().on_op = [](const detail::RingOp& op, std::uint64_t) {
      return op.write ? RingFaults::kExecute : 0;
    };
    return fixture_.make();
  }();
  must(write_and_wait(*store, 1, first_));
  EXPECT_EQ(read_and_wait(*store, 1, read_).code(), Code::corrupt);
}

TEST_F(RingIoBackendTest, WriteThatTakesNothingMovesToAnotherSlot) {
  answer_op(1, 0);
  const auto store = fixture_.make();
  expect_round_trips(*store);
  EXPECT_EQ(store->counters().bad_slots, 1u);
}

TEST_F(RingIoBackendTest, MoreBytesThanAskedForIsInternal) {
  answer_op(1, 1 << 20);
  EXPECT_EQ(write_and_wait(*fixture_.make(), 1, first_).code(), Code::internal);
}

TEST_F(RingIoBackendTest, EndlessShortCountsInsideOneBlockBecomeAnError) {
  fixture_.ring().on_op = [](const detail::RingOp& op, std::uint64_t) {
    return op.write ? RingFaults::kExecute : 1;
  };
  const auto store = fixture_.make({.classes = {{4096, 2}}});
  const AlignedBuffer small(4096, 1);
  must(write_and_wait(*store, 1, small));
  if (store->io_description().find("buffered") != std::string::npos)
    GTEST_SKIP() << "counts of one byte do add up here";
  const Status status = read_and_wait(*store, 1, small);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_NE(status.message().find("no progress"), std::string_view::npos) << status.message();
}

// The last two slots are being written when the device fails one of the writes.
class StarvedWriteTest : public RingIoBackendTest {
 protected:
  // Operation 1 is the first write of id 7. Operation 2 fails once both other writes are submitted, and so do
  // operations 3 to `last_failing`.
  void start(std::uint64_t last_failing) {
    fixture_.ring().on_op = [this, last_failing](const detail::RingOp&, std::uint64_t n) {
      if (n == 2) submitted_.wait();
      return n >= 2 && n <= last_failing ? -EIO : RingFaults::kExecute;
    };
    store_ = fixture_.make({.classes = {{kSlotBytes, 3}}, .block_bytes = kSlotBytes});
    must(write_and_wait(*store_, 7, first_));
    starved_ = must(store_->write_async(8, 0, second_.view()));
    other_ = must(store_->write_async(7, 0, second_.view()));
    submitted_.count_down();
  }
  std::latch submitted_{1};
  AlignedBuffer second_{kSlotBytes, 2};
  StorePtr<NvmeStore> store_;
  IoTicket starved_, other_;
};

TEST_F(StarvedWriteTest, TakesTheSlotThatTheOtherWriteFrees) {
  start(2);
  must(store_->wait(other_));
  must(store_->wait(starved_));
  must(read_and_wait(*store_, 8, read_));
  EXPECT_TRUE(read_ == second_);
  EXPECT_EQ(store_->counters().write_retries, 1u);
}

TEST_F(StarvedWriteTest, FailsWithItsOwnCauseWhenNothingIsLeftThatCouldFreeOne) {
  start(3);
  EXPECT_EQ(store_->wait(other_).code(), Code::io_error);
  const Status status = store_->wait(starved_);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_NE(status.message().find("writing id 8"), std::string_view::npos) << status.message();
  must(read_and_wait(*store_, 7, read_));
  EXPECT_TRUE(read_ == first_);
}

// The second write never completes; published generations stay, and no call waits forever.
TEST_F(RingIoBackendTest, ALostCompletionTimesOutNamingItsRequestAndDisablesTheStore) {
  const ChildResult child = run_in_child([&] {
    answer_op(2, RingFaults::kDrop);
    const auto store =
        fixture_.make({.block_bytes = kSlotBytes, .max_requests = 2, .deadline = std::chrono::seconds(1)});
    must(write_and_wait(*store, 6, first_));
    const IoTicket lost = must(store->write_async(7, 0, first_.view()));
    const Status status = store->wait(lost);
    const bool same = store->wait(lost) == status && read_and_wait(*store, 6, read_) == status &&
                      write_and_wait(*store, 8, first_) == status;
    return str(same ? "for good: " : "once: ", status.to_string());
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_TRUE(child.output.starts_with("for good: timeout: writing id 7 generation 2")) << child.output;
  EXPECT_NE(child.output.find("within 1000 ms"), std::string::npos) << child.output;
}

// Callers that wait for a free entry of the request table, not for a request, get the error as well.
TEST_F(RingIoBackendTest, ALostCompletionTimesOutCallersThatWaitForAFreeRequest) {
  const ChildResult child = run_in_child([&] {
    fixture_.ring().on_op = [](const detail::RingOp&, std::uint64_t) { return RingFaults::kDrop; };
    const auto store = fixture_.make({.max_requests = 2, .deadline = std::chrono::milliseconds(50)});
    must(store->write_async(1, 0, first_.view()));
    must(store->write_async(2, 0, first_.view()));
    return store->write_async(3, 0, first_.view()).status().to_string();
  });
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_TRUE(child.output.starts_with("timeout: writing id 1")) << child.output;
}

// A disk that needs longer than the deadline for a whole request is slow, not stuck.
TEST_F(RingIoBackendTest, ARequestThatMakesProgressMayTakeLongerThanTheDeadline) {
  constexpr std::size_t kBlocks = 6;
  std::binary_semaphore never(0);
  fixture_.ring().capacity = 2;  // one block at a time in each direction
  fixture_.ring().on_op = [&never](const detail::RingOp&, std::uint64_t) {
    static_cast<void>(never.try_acquire_for(std::chrono::milliseconds(300)));
    return RingFaults::kExecute;
  };
  const auto store = fixture_.make({.block_bytes = kSlotBytes / kBlocks / 4096 * 4096,
                                    .max_requests = 2,
                                    .deadline = std::chrono::milliseconds(1000)});
  EXPECT_TRUE(write_and_wait(*store, 7, first_).is_ok());
  EXPECT_TRUE(read_and_wait(*store, 7, read_).is_ok());
  EXPECT_TRUE(read_ == first_);
}

TEST_F(RingIoBackendTest, EverythingAtOnceGivesTheSameBytesForManySeeds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    StoreFixture fixture(TestIoBackend::fake_ring, seed);
    fixture.ring().shuffle = fixture.ring().duplicate = true;
    fixture.ring().on_op = [seed](const detail::RingOp&, std::uint64_t n) {
      return Rng(seed, n).below(0, 4) == 0 ? -EAGAIN : RingFaults::kExecute;
    };
    fixture.faults().add({IoCall::read, FaultKind::shorten, 1, true});
    fixture.faults().add({IoCall::write, FaultKind::shorten, 1, true});
    const auto store = fixture.make();
    SCOPED_TRACE(seed);
    expect_round_trips(*store);
  }
}

}  // namespace
}  // namespace strata::test
