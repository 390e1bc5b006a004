// How a store handles faults of its files. Both I/O backends see them through FaultIo and behave the same.
#include <strata/offload/nvme_store.h>

#include <gtest/gtest.h>

#include <strata/runtime/str.h>

#include "store_fixture.h"

namespace strata::test {
namespace {

class NvmeFaultTest : public testing::TestWithParam<TestIoBackend> {
 protected:
  // One block per request and one thread: the n-th call belongs to the n-th request.
  StorePtr<NvmeStore> make(std::uint32_t slots = 4) {
    return fixture_.make({.classes = {{kSlotBytes, slots}}, .block_bytes = kSlotBytes, .io_threads = 1});
  }
  StorePtr<NvmeStore> make_blocks() { return fixture_.make({.io_threads = 1}); }
  static bool mentions(const Status& status, std::string_view text) {
    return status.message().find(text) != std::string_view::npos;
  }
  StoreFixture fixture_{GetParam(), 3};
  AlignedBuffer first_{kSlotBytes, 1};
  AlignedBuffer second_{kSlotBytes, 2};
  AlignedBuffer read_{kSlotBytes};
};

INSTANTIATE_TEST_SUITE_P(IoBackends, NvmeFaultTest,
                         testing::Values(TestIoBackend::threads, TestIoBackend::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });

TEST_P(NvmeFaultTest, ShortTransfersGiveTheSameBytes) {
  fixture_.faults().enforce_alignment(4096);
  fixture_.faults().add({IoCall::write, FaultKind::shorten, 1, true});
  fixture_.faults().add({IoCall::read, FaultKind::shorten, 1, true});
  const auto store = make_blocks();
  must(write_and_wait(*store, 7, first_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == first_);
  EXPECT_GT(fixture_.faults().log().size(), 8u);
}

TEST_P(NvmeFaultTest, ReadThatFailsOnceIsReadAgain) {
  fixture_.faults().add({IoCall::read, FaultKind::fail, 1});
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == first_);
  EXPECT_EQ(store->counters().read_retries, 1u);
}

TEST_P(NvmeFaultTest, OneBlockThatFailsOnceDoesNotSpoilTheChecksum) {
  fixture_.faults().add({IoCall::read, FaultKind::fail, 5});
  const auto store = make_blocks();
  must(write_and_wait(*store, 7, first_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == first_);
}

TEST_P(NvmeFaultTest, ReadThatAlwaysFailsNamesIdFileAndOffset) {
  fixture_.faults().add({IoCall::read, FaultKind::fail, 1, true});
  const auto store = make();
  must(write_and_wait(*store, 6, second_));
  must(write_and_wait(*store, 7, first_));
  const Status status = read_and_wait(*store, 7, read_);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_TRUE(mentions(status, "id 7 generation 2")) << status.message();
  EXPECT_TRUE(mentions(status, fixture_.dir())) << status.message();
  EXPECT_TRUE(mentions(status, "at offset 262144")) << status.message();
}

TEST_P(NvmeFaultTest, FailureBelongsToItsRequestAlone) {
  const auto store = make();
  must(write_and_wait(*store, 1, first_));
  must(write_and_wait(*store, 2, second_));
  fixture_.faults().add({IoCall::read, FaultKind::fail, 1});
  fixture_.faults().add({IoCall::read, FaultKind::fail, 2});
  const IoTicket failing = must(store->read_async(1, read_.view()));
  EXPECT_EQ(store->wait(failing).code(), Code::io_error);
  must(read_and_wait(*store, 2, read_));
  EXPECT_TRUE(read_ == second_);
  EXPECT_EQ(store->wait(failing).code(), Code::io_error);
}

TEST_P(NvmeFaultTest, WriteThatFailsOnceGoesToAnotherSlot) {
  fixture_.faults().add({IoCall::write, FaultKind::fail, 1});
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == first_);
  EXPECT_EQ(store->counters().bad_slots, 1u);
  EXPECT_EQ(store->counters().write_retries, 1u);
  EXPECT_EQ(store->counters().endurance_bytes, 2 * kSlotBytes);
}

TEST_P(NvmeFaultTest, WriteThatAlwaysFailsKeepsThePublishedGeneration) {
  const auto store = make(3);
  must(write_and_wait(*store, 7, first_));
  fixture_.faults().add({IoCall::write, FaultKind::fail, 2, true});
  const Status status = write_and_wait(*store, 7, second_);
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_TRUE(mentions(status, "2 are bad")) << status.message();
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == first_);
}

// Each slot was set aside by then.
TEST_P(NvmeFaultTest, AStoreWhoseWritesAllFailedGoesOnWhenTheDeviceIsBack) {
  const auto store = make(3);
  must(write_and_wait(*store, 7, first_));
  fixture_.faults().add({IoCall::write, FaultKind::fail, 2});
  fixture_.faults().add({IoCall::write, FaultKind::fail, 3});
  EXPECT_EQ(write_and_wait(*store, 7, second_).code(), Code::io_error);
  must(write_and_wait(*store, 7, second_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == second_);
  must(write_and_wait(*store, 7, first_));
  must(write_and_wait(*store, 7, second_));
  EXPECT_EQ(store->counters().bad_slots, 2u);
}

TEST_P(NvmeFaultTest, FirstWriteThatFailsLeavesNoId) {
  fixture_.faults().add({IoCall::write, FaultKind::fail, 1, true});
  const auto store = make(2);
  EXPECT_EQ(write_and_wait(*store, 7, first_).code(), Code::io_error);
  EXPECT_FALSE(store->find(7).has_value());
  EXPECT_EQ(store->used_bytes(), 0u);
  EXPECT_EQ(write_and_wait(*store, 8, first_).code(), Code::io_error);
}

TEST_P(NvmeFaultTest, DiskFullInARunIsReportedAndCostsNoSlot) {
  fixture_.faults().add({IoCall::write, FaultKind::fail, 1, false, Code::no_space});
  const auto store = make(1);
  EXPECT_EQ(write_and_wait(*store, 7, first_).code(), Code::no_space);
  EXPECT_EQ(store->counters().bad_slots, 0u);
  must(write_and_wait(*store, 7, first_));
}

TEST_P(NvmeFaultTest, FlippedReadIsReadAgain) {
  fixture_.faults().add({IoCall::read, FaultKind::flip, 1});
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == first_);
  EXPECT_EQ(store->counters().read_retries, 1u);
}

TEST_P(NvmeFaultTest, FlippedWriteIsCorruptWithBothChecksums) {
  fixture_.faults().add({IoCall::write, FaultKind::flip, 1});
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  const Status status = read_and_wait(*store, 7, read_);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_TRUE(mentions(status, "id 7 generation 1")) << status.message();
  EXPECT_TRUE(mentions(status, "crc32c is 0x")) << status.message();
  EXPECT_TRUE(mentions(status, ", expected 0x")) << status.message();
  EXPECT_EQ(store->counters().verified_bytes, 0u);
}

TEST_P(NvmeFaultTest, TornWriteIsCorrupt) {
  fixture_.faults().add({IoCall::write, FaultKind::tear, 1});
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  EXPECT_EQ(read_and_wait(*store, 7, read_).code(), Code::corrupt);
}

// The slot then holds a complete older generation of the same id.
TEST_P(NvmeFaultTest, LostWriteIsCorrupt) {
  const auto store = make(2);
  fixture_.faults().add({IoCall::write, FaultKind::lose, 3});
  must(write_and_wait(*store, 7, first_));
  must(write_and_wait(*store, 7, second_));
  must(write_and_wait(*store, 7, AlignedBuffer(kSlotBytes, 3)));
  EXPECT_EQ(read_and_wait(*store, 7, read_).code(), Code::corrupt);
  EXPECT_TRUE(read_ == first_);
}

TEST_P(NvmeFaultTest, MisdirectedWriteIsFoundWhereItIsMissingAndWhereItArrived) {
  const auto store = make(2);
  fixture_.faults().add({IoCall::write, FaultKind::misdirect, 2});
  must(write_and_wait(*store, 7, first_));
  must(write_and_wait(*store, 8, second_));
  EXPECT_EQ(read_and_wait(*store, 8, read_).code(), Code::corrupt) << fixture_.faults().log().back();
  EXPECT_EQ(read_and_wait(*store, 7, read_).code(), Code::corrupt) << fixture_.faults().log().back();
}

TEST_P(NvmeFaultTest, AFailureOfAnyOneCallNeverReturnsWrongBytes) {
  for (std::uint64_t nth = 1; nth <= 12; ++nth) {
    StoreFixture fixture(GetParam(), nth);
    fixture.faults().add({IoCall::write, FaultKind::fail, nth});
    fixture.faults().add({IoCall::read, FaultKind::fail, nth});
    const auto store = fixture.make({.block_bytes = 64 * kKiB, .io_threads = 1});
    must(write_and_wait(*store, 7, first_));
    must(read_and_wait(*store, 7, read_));
    ASSERT_TRUE(read_ == first_) << "call " << nth;
  }
}

TEST_P(NvmeFaultTest, SameSeedReplaysTheSameFaults) {
  const auto run = [&] {
    StoreFixture fixture(GetParam(), 9);
    fixture.faults().add({IoCall::write, FaultKind::shorten, 1, true});
    const auto store = fixture.make({.block_bytes = kSlotBytes, .io_threads = 1});
    must(write_and_wait(*store, 7, first_));
    return fixture.faults().log();
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace strata::test
