// Requests that fail or do not end, and objects that do not fit.
#include "offload/spill_fixture.h"

namespace strata {
namespace {

using namespace test;

TEST_F(SpillStoreTest, AFailedWriteKeepsTheBytesAndIsReportedWhenThereIsNoRoom) {
  make(4, 100);
  faults_.add({test::IoCall::write, test::FaultKind::fail, 1, true});
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 3; ++i) ids.push_back(put(bytes_of(kPage, i)));
  const Status failed = try_put(bytes_of(kPage, 3));
  EXPECT_EQ(failed.code(), Code::io_error);
  EXPECT_NE(failed.message().find("making room for object 4: writing object "), std::string::npos)
      << failed.message();
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(get(ids[i], kPage), bytes_of(kPage, i));
  EXPECT_EQ(store_->stats().n_objects, 3u);
  faults_.clear();
  ids.push_back(put(bytes_of(kPage, 3)));  // to slots that have not failed
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(get(ids[i], kPage), bytes_of(kPage, i));
}

TEST_F(SpillStoreTest, APutEndsWhenItsOwnWritesFailUntilNoSlotIsLeft) {
  make(4, 2);
  faults_.add({test::IoCall::write, test::FaultKind::fail, 1, true});
  const Status failed = try_put(bytes_of(5 * kPage, 1));
  EXPECT_EQ(failed.code(), Code::io_error);
  EXPECT_EQ(failed.message().rfind("making room for object 1: writing object 1: ", 0), 0u)
      << failed.message();
  EXPECT_NE(failed.message().find("injected failure"), std::string::npos) << failed.message();
  EXPECT_EQ(store_->stats().n_objects, 0u);
  const std::uint64_t id = put(bytes_of(3 * kPage, 2));  // RAM is as large as before
  EXPECT_EQ(get(id, 3 * kPage), bytes_of(3 * kPage, 2));
  EXPECT_EQ(try_put(bytes_of(kPage, 3)).code(), Code::io_error);  // it fitted before slots failed
  EXPECT_EQ(try_put(bytes_of(9 * kPage, 3)).code(), Code::does_not_fit);
}

TEST_F(SpillStoreTest, MemoryThatAWriteMayStillReadIsNotGivenBack) {
  watch_.hangs = true;
  make(4, 100, &watch_);
  EXPECT_EQ(try_put(bytes_of(10 * kPage, 1)).code(), Code::timeout);
  store_.reset();
  backend_.reset();  // it does not count the memory any more
  auto* const page = const_cast<std::byte*>(watch_.written_from);
  EXPECT_EQ(msync(page, kPage, MS_ASYNC), 0) << "the page is not mapped";
  watch_.hangs = false;
  delete watched_;
}

TEST_F(SpillStoreTest, AFullFileSystemIsReportedAndTriedAgain) {
  make(4, 100);
  faults_.add({test::IoCall::allocate, test::FaultKind::fail, 1, true, Code::no_space});
  for (std::uint64_t i = 0; i < 3; ++i) (void)put(bytes_of(kPage, i));
  EXPECT_EQ(try_put(bytes_of(kPage, 3)).code(), Code::no_space);
  faults_.clear();
  const std::uint64_t id = put(bytes_of(2 * kPage, 4));
  EXPECT_EQ(get(id, 2 * kPage), bytes_of(2 * kPage, 4));
}

TEST_F(SpillStoreTest, AFailedReadNamesTheObjectAndMayBeRepeated) {
  make(4, 100);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 20; ++i) ids.push_back(put(bytes_of(kPage, i)));
  faults_.add({test::IoCall::read, test::FaultKind::fail, faults_.calls(test::IoCall::read) + 1, true});
  Bytes into(kPage);
  const Status failed = get(ids[0], into);
  EXPECT_EQ(failed.code(), Code::io_error);
  EXPECT_EQ(failed.message().rfind("reading object 1: ", 0), 0u) << failed.message();
  faults_.clear();
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(get(ids[i], kPage), bytes_of(kPage, i));
}

TEST_F(SpillStoreTest, AReadThatFailsAmongOthersInFlightIsRepeated) {
  make(64, 200, &watch_);  // 4 of these frames are for reading
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 100; ++i) ids.push_back(put(bytes_of(kPage, i)));
  for (std::uint64_t i = 0; i < 3; ++i, ids.pop_back()) must(store_->discard(ids.back()));  // frames
  watch_.answers_late = true;
  watch_.failing_reads = {1};
  for (const std::size_t i : {0u, 1u, 2u}) must(store_->prefetch(ids[i]));
  EXPECT_EQ(watch_.reading, (std::set<std::uint64_t>{0, 1, 2}));
  Bytes into(kPage);
  EXPECT_EQ(get(ids[1], into).message(), "reading object 2: a read fails");
  EXPECT_EQ(get(ids[1], kPage), bytes_of(kPage, 1));
}

TEST_F(SpillStoreTest, ABitThatFlipsOnNvmeIsNoticed) {
  make(4, 100);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 20; ++i) ids.push_back(put(bytes_of(kPage, i)));
  faults_.add({test::IoCall::read, test::FaultKind::flip, faults_.calls(test::IoCall::read) + 1, true});
  Bytes into(kPage);
  EXPECT_EQ(get(ids[0], into).code(), Code::corrupt);
}

}  // namespace
}  // namespace strata
