// The parts of the store that keep books, without files or threads.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include <strata/runtime/io/crc32c.h>

#include "store/object_checksums.h"
#include "store/object_table.h"
#include "store/request_table.h"

namespace strata::detail {
namespace {

constexpr std::array<std::uint64_t, 1> kOnlyFile{1};  // the weight of the file

TEST(RequestTableTest, ATicketOutlivesTheReuseOfItsEntry) {
  RequestTable table(1, 1);
  const IoTicket first = table.begin(true, 7, nullptr, 4096, 0);
  EXPECT_TRUE(table.is_full());
  EXPECT_TRUE(table.is_in_flight(first));
  table.end(first.index, Status::error(Code::io_error, "lost"));
  EXPECT_TRUE(table.is_idle());

  const IoTicket second = table.begin(false, 7, nullptr, 4096, 0);
  EXPECT_EQ(second.index, first.index);
  EXPECT_FALSE(table.is_in_flight(first));
  EXPECT_TRUE(table.is_in_flight(second));
  table.end(second.index, Status::ok());
  EXPECT_EQ(table.outcome(first).message(), "lost");
  EXPECT_TRUE(table.outcome(second).is_ok());
}

TEST(RequestTableTest, ATicketThatWasNeverGivenIsInvalid) {
  RequestTable table(2, 1);
  EXPECT_EQ(table.outcome({0, 1}).code(), Code::invalid);
  EXPECT_EQ(table.outcome({2, 0}).code(), Code::invalid);
}

TEST(RequestTableTest, TheOldestRequestIsTheOneInFlightThatWasSubmittedFirst) {
  RequestTable table(3, 1);
  const IoTicket ended = table.begin(true, 1, nullptr, 4096, 0);
  table.begin(true, 2, nullptr, 4096, 0);
  table.begin(true, 3, nullptr, 4096, 0);
  table.end(ended.index, Status::ok());
  table.begin(true, 4, nullptr, 4096, 0);
  EXPECT_EQ(table.oldest().id, 2u);
}

class ObjectTableTest : public testing::Test {
 protected:
  /// Writes a generation of id 7. Returns its slot.
  SlotIndex write(std::uint64_t generation, WriteMode mode) {
    const SlotIndex slot = *slots_.allocate(0);
    objects_.begin_write(7, generation, mode);
    objects_.publish(7, {slot, 0, generation, 4096});
    objects_.end_write(7);
    return slot;
  }
  const SlotClass class_{4096, 3};
  SlotAllocator slots_{{&class_, 1}, kOnlyFile};
  ObjectTable objects_{slots_};
};

TEST_F(ObjectTableTest, AnOverwrittenGenerationGivesItsSlotBack) {
  write(1, WriteMode::replace);
  const SlotIndex second = write(2, WriteMode::replace);
  EXPECT_EQ(objects_.live(7)->slot, second);
  EXPECT_EQ(slots_.used_bytes(), 4096u);
}

TEST_F(ObjectTableTest, ASlotWithAReaderIsFreedByTheEndOfTheRead) {
  const SlotIndex first = write(1, WriteMode::replace);
  objects_.begin_read(7);
  write(2, WriteMode::replace);
  EXPECT_EQ(slots_.used_bytes(), 2 * 4096u);
  objects_.end_read(7, first);
  EXPECT_EQ(slots_.used_bytes(), 4096u);
}

TEST_F(ObjectTableTest, CommitFreesTheSnapshotAndRollbackPublishesItAgain) {
  const SlotIndex first = write(1, WriteMode::replace);
  const SlotIndex second = write(2, WriteMode::snapshot);
  EXPECT_EQ(objects_.rollback(7).slot, second);
  EXPECT_EQ(objects_.live(7)->slot, first);
  write(3, WriteMode::snapshot);
  EXPECT_EQ(objects_.commit(7).slot, first);
  EXPECT_EQ(objects_.live(7)->generation, 3u);
}

TEST_F(ObjectTableTest, AnIdWhoseOnlyWriteFailedIsUnknown) {
  objects_.begin_write(7, 1, WriteMode::replace);
  objects_.end_write(7);
  EXPECT_EQ(objects_.live(7), nullptr);
  EXPECT_EQ(objects_.discard(7)[0].slot, kNoSlot);
}

TEST_F(ObjectTableTest, OnlyWritesAndReadersAreInFlight) {
  EXPECT_EQ(slots_.n_in_flight(0), 0u);
  const SlotIndex slot = write(1, WriteMode::replace);
  EXPECT_EQ(slots_.n_in_flight(0), 0u);
  objects_.begin_read(7);
  const SlotIndex bad = *slots_.allocate(0);
  EXPECT_EQ(slots_.n_in_flight(0), 2u);
  slots_.mark_bad(bad);
  objects_.end_read(7, slot);
  EXPECT_EQ(slots_.n_in_flight(0), 0u);
}

TEST(ObjectChecksumsTest, BlocksInAnyOrderGiveTheChecksumOfTheWholeObject) {
  std::vector<std::byte> bytes(10000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  ObjectChecksums checksums(2);
  checksums.begin(1, bytes);
  checksums.add_block(1, 8192, 1808);
  checksums.add_block(1, 0, 4096);
  checksums.add_block(1, 4096, 4096);
  EXPECT_EQ(checksums.of_object(1, 7, 3), crc32c(crc32c_seed(7, 3), bytes));
}

TEST(ObjectChecksumsTest, AbandonedObjectsAreNotRead) {
  ObjectChecksums checksums(1);
  const auto* unmapped = reinterpret_cast<const std::byte*>(std::uintptr_t{4096});
  checksums.begin(0, {unmapped, 4096});
  checksums.abandon();
  checksums.add_block(0, 0, 4096);
}

}  // namespace
}  // namespace strata::detail
