// The contract of NvmeStore, tested with every I/O backend.
#include <strata/offload/nvme_store.h>

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include <strata/runtime/memory/alloc_counter.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "store_fixture.h"
#include "support/child.h"

namespace strata::test {
namespace {

class NvmeStoreTest : public testing::TestWithParam<TestIoBackend> {
 protected:
  void SetUp() override {
    std::string why;
    if (GetParam() == TestIoBackend::uring && !uring_works(&why)) GTEST_SKIP() << why;
  }
  StoreFixture fixture_{GetParam()};
  AlignedBuffer first_{kSlotBytes, 1};
  AlignedBuffer second_{kSlotBytes, 2};
  AlignedBuffer read_{kSlotBytes};
};

INSTANTIATE_TEST_SUITE_P(IoBackends, NvmeStoreTest,
                         testing::Values(TestIoBackend::uring, TestIoBackend::threads,
                                         TestIoBackend::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });

TEST_P(NvmeStoreTest, BytesComeBackAtEverySize) {
  const auto store = fixture_.make({.classes = {{2 * kMiB, 3}}, .block_bytes = 64 * kKiB});
  for (const std::size_t bytes : {4 * kKiB, 64 * kKiB, 68 * kKiB, kMiB + 4 * kKiB, 2 * kMiB}) {
    const AlignedBuffer from(bytes, bytes), into(bytes);
    must(write_and_wait(*store, 7, from));
    must(read_and_wait(*store, 7, into));
    EXPECT_TRUE(from == into) << bytes;
  }
}

TEST_P(NvmeStoreTest, WaitForReportsWhetherTheRequestIsComplete) {
  const auto store = fixture_.make({.classes = {{2 * kMiB, 3}}, .block_bytes = 64 * kKiB});
  const AlignedBuffer from(2 * kMiB, 1);
  const IoTicket ticket = must(store->write_async(7, 0, from.view()));
  int looks = 1;
  while (!store->wait_for(ticket, 20'000)) ASSERT_LT(++looks, 1'000'000);
  EXPECT_TRUE(store->is_complete(ticket));
  must(store->wait(ticket));
  EXPECT_TRUE(store->wait_for(ticket, 0)) << "and stays over";
  EXPECT_TRUE(store->wait_for({}, 0)) << "as a default one is";
}

TEST_P(NvmeStoreTest, OverwritePublishesANewGeneration) {
  const auto store = fixture_.make();
  must(write_and_wait(*store, 7, first_));
  const std::uint64_t generation = store->find(7)->generation;
  must(write_and_wait(*store, 7, second_));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == second_);
  EXPECT_GT(store->find(7)->generation, generation);
}

TEST_P(NvmeStoreTest, InFlightReadKeepsItsGeneration) {
  const auto store = fixture_.make();
  must(write_and_wait(*store, 7, first_));
  const IoTicket reading = must(store->read_async(7, read_.view()));
  for (int i = 0; i < 5; ++i) must(write_and_wait(*store, 7, second_));
  must(store->wait(reading));
  EXPECT_TRUE(read_ == first_);
}

TEST_P(NvmeStoreTest, LastOfManyWritesInFlightWins) {
  const auto store = fixture_.make();
  std::vector<AlignedBuffer> versions;
  std::vector<IoTicket> tickets;
  for (std::uint64_t i = 0; i < 20; ++i) versions.emplace_back(kSlotBytes, i);
  for (const AlignedBuffer& version : versions)
    tickets.push_back(must(store->write_async(7, 0, version.view())));
  for (const IoTicket ticket : tickets) must(store->wait(ticket));
  must(read_and_wait(*store, 7, read_));
  EXPECT_TRUE(read_ == versions.back());
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
}

TEST_P(NvmeStoreTest, UnknownIdIsNotFound) {
  const auto store = fixture_.make();
  EXPECT_EQ(store->read_async(3, read_.view()).status().code(), Code::not_found);
}

TEST_P(NvmeStoreTest, WrongSizeIsInvalidWithBothNumbers) {
  const auto store = fixture_.make();
  must(write_and_wait(*store, 3, first_));
  const Status status = store->read_async(3, read_.view().part(0, 8192)).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.message().find("262144 bytes are stored, but the buffer has 8192"), std::string_view::npos)
      << status.message();
}

TEST_P(NvmeStoreTest, MisalignedBuffersAreInvalid) {
  const auto store = fixture_.make();
  EXPECT_EQ(store->write_async(3, 0, first_.view().part(512, 4096)).status().code(), Code::invalid);
  EXPECT_EQ(store->write_async(3, 0, first_.view().part(0, 4095)).status().code(), Code::invalid);
  EXPECT_EQ(store->read_async(3, {nullptr, 0}).status().code(), Code::invalid);
}

TEST_P(NvmeStoreTest, WriteLargerThanItsSlotIsInvalid) {
  const auto store = fixture_.make();
  EXPECT_EQ(store->write_async(3, 0, AlignedBuffer(kSlotBytes + 4096).view()).status().code(), Code::invalid);
  EXPECT_EQ(store->write_async(3, 1, first_.view()).status().code(), Code::invalid);
}

TEST_P(NvmeStoreTest, ConcurrentReadersAndWritersKeepIdsApart) {
  const auto store = fixture_.make({.classes = {{kSlotBytes, 12}}, .max_requests = 6});
  const auto work = [&](std::uint64_t id) {
    const AlignedBuffer into(kSlotBytes);
    for (std::uint64_t i = 0; i < 12; ++i) {
      const AlignedBuffer from(kSlotBytes, 100 * id + i);
      must(write_and_wait(*store, id, from));
      must(read_and_wait(*store, id, into));
      ASSERT_TRUE(from == into) << "id " << id << " round " << i;
    }
  };
  std::vector<std::jthread> threads;
  for (std::uint64_t id = 1; id <= 4; ++id) threads.emplace_back(work, id);
  threads.clear();
  EXPECT_EQ(store->counters().writes, 48u);
}

TEST_P(NvmeStoreTest, TwoStoresInOneFolderDoNotInterfere) {
  const auto one = fixture_.make();
  const auto other = fixture_.make();
  must(write_and_wait(*one, 7, first_));
  must(write_and_wait(*other, 7, second_));
  must(read_and_wait(*one, 7, read_));
  EXPECT_TRUE(read_ == first_);
}

TEST_P(NvmeStoreTest, FolderStaysEmpty) {
  const auto store = fixture_.make();
  must(write_and_wait(*store, 7, first_));
  EXPECT_TRUE(must(posix_io().list(fixture_.dir())).empty());
}

TEST_P(NvmeStoreTest, FullTableBlocksAndThenContinues) {
  const auto store = fixture_.make({.classes = {{kSlotBytes, 5}}, .max_requests = 2});
  for (std::uint64_t i = 0; i < 40; ++i) must(store->write_async(i % 3, 0, first_.view()));
  must(store->wait(must(store->write_async(1, 0, second_.view()))));
  must(read_and_wait(*store, 1, read_));
  EXPECT_TRUE(read_ == second_);
}

TEST_P(NvmeStoreTest, FullClassDoesNotFitAndSaysWhatItHolds) {
  const auto store = fixture_.make({.classes = {{kSlotBytes, 2}}});
  must(write_and_wait(*store, 1, first_));
  must(write_and_wait(*store, 2, first_));
  const Status status = write_and_wait(*store, 3, first_);
  EXPECT_EQ(status.code(), Code::does_not_fit);
  EXPECT_NE(status.message().find("2 slots of 262144 bytes, 2 hold data"), std::string_view::npos)
      << status.message();
}

TEST_P(NvmeStoreTest, DiscardFreesTheSlotAndForgetsTheId) {
  const auto store = fixture_.make({.classes = {{kSlotBytes, 1}}});
  must(write_and_wait(*store, 1, first_));
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
  store->discard(1);
  EXPECT_EQ(store->used_bytes(), 0u);
  EXPECT_EQ(store->read_async(1, read_.view()).status().code(), Code::not_found);
  must(write_and_wait(*store, 2, first_));
}

TEST_P(NvmeStoreTest, SeveralFoldersShareTheSlots) {
  const TempDir second_dir;
  const auto store = fixture_.make(
      {.dirs = {fixture_.dir(), second_dir.path()}, .classes = {{kSlotBytes, 3}, {8 * kKiB, 3}}});
  for (std::uint64_t id = 0; id < 3; ++id) must(write_and_wait(*store, id, first_));
  const AlignedBuffer small(8 * kKiB, 9), small_read(8 * kKiB);
  must(write_and_wait(*store, 10, small, 1));
  must(read_and_wait(*store, 2, read_));
  must(read_and_wait(*store, 10, small_read));
  EXPECT_TRUE(read_ == first_ && small_read == small);
  EXPECT_EQ(store->capacity_bytes(), 3 * kSlotBytes + 3 * 8 * kKiB);
}

TEST_P(NvmeStoreTest, TicketReportsItsOutcomeTwiceAndLate) {
  const auto store = fixture_.make();
  const IoTicket ticket = must(store->write_async(1, 0, first_.view()));
  must(store->wait(ticket));
  for (int i = 0; i < 100; ++i) must(write_and_wait(*store, 2, second_));
  EXPECT_TRUE(store->is_complete(ticket));
  EXPECT_TRUE(store->wait(ticket).is_ok());
}

TEST_P(NvmeStoreTest, DefaultTicketIsCompleteAndAnUnknownOneIsInvalid) {
  const auto store = fixture_.make();
  EXPECT_TRUE(store->is_complete({}));
  EXPECT_TRUE(store->wait({}).is_ok());
  EXPECT_EQ(store->wait({0, 99}).code(), Code::invalid);
}

TEST_P(NvmeStoreTest, CountersAddUp) {
  const auto store = fixture_.make();
  must(write_and_wait(*store, 1, first_));
  must(write_and_wait(*store, 2, first_));
  must(read_and_wait(*store, 1, read_));
  const NvmeCounters counters = store->counters();
  EXPECT_EQ(counters.bytes_written, 2 * kSlotBytes);
  EXPECT_EQ(counters.endurance_bytes, 2 * kSlotBytes);
  EXPECT_EQ(counters.bytes_read, kSlotBytes);
  EXPECT_EQ(counters.verified_bytes, kSlotBytes);
  EXPECT_EQ(counters.files_opened, 1u);
  EXPECT_EQ(counters.bad_slots + counters.read_retries + counters.write_retries, 0u);
}

TEST_P(NvmeStoreTest, RegisteredMemoryGivesTheSameBytes) {
  const auto store = fixture_.make();
  must(store->register_memory(first_.view()));
  must(store->register_memory(read_.view()));
  must(write_and_wait(*store, 1, first_));
  must(read_and_wait(*store, 1, read_));
  EXPECT_TRUE(read_ == first_) << store->io_description();
}

TEST_P(NvmeStoreTest, DestructorWaitsForWhatIsInFlight) {
  auto store = fixture_.make();
  must(write_and_wait(*store, 1, first_));
  std::vector<AlignedBuffer> reads;
  for (int i = 0; i < 10; ++i) reads.emplace_back(kSlotBytes);
  for (const AlignedBuffer& into : reads) must(store->read_async(1, into.view()));
  store.reset();
  for (const AlignedBuffer& into : reads) EXPECT_TRUE(into == first_);
}

TEST_P(NvmeStoreTest, NothingAllocatesOnceCreated) {
  if (!AllocCounter::hooked()) GTEST_SKIP() << "operator new is not replaced in this build";
  if (GetParam() == TestIoBackend::fake_ring) GTEST_SKIP() << "the fake ring itself allocates";
  const auto store = fixture_.make();
  AllocCounter::set_armed(true);
  const std::uint64_t before = AllocCounter::count();
  for (std::uint64_t i = 0; i < 50; ++i) {
    must(write_and_wait(*store, i % 7, first_));
    must(read_and_wait(*store, i % 7, read_));
  }
  const std::uint64_t after = AllocCounter::count();
  AllocCounter::set_armed(false);
  EXPECT_EQ(after - before, 0u);
}

// Compares random operations with a std::map. Requests overlap, and buffers live until their requests are
// waited for.
TEST_P(NvmeStoreTest, BehavesAsAMapUnderRandomOperations) {
  constexpr std::uint64_t kIds = 5, kSeed = 11;
  const auto store =
      fixture_.make({.classes = {{64 * kKiB, 9}}, .block_bytes = 16 * kKiB, .max_requests = 4});
  const Rng rng(kSeed, 0);
  std::map<std::uint64_t, std::uint64_t> model;  // id -> seed of its bytes
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t id = rng.below(2 * i, kIds);
    const std::uint64_t what = rng.below(2 * i + 1, 10);
    if (what < 4) {
      const AlignedBuffer from(64 * kKiB, i), overtaken(64 * kKiB, i + 1000);
      const IoTicket older = must(store->write_async(id, 0, overtaken.view()));
      must(store->wait(must(store->write_async(id, 0, from.view()))));
      must(store->wait(older));
      model[id] = i;
    } else if (what < 9) {
      const AlignedBuffer into(64 * kKiB);
      const Status status = read_and_wait(*store, id, into);
      ASSERT_EQ(status.code(), model.contains(id) ? Code::ok : Code::not_found)
          << "seed " << kSeed << " step " << i;
      if (model.contains(id)) {
        ASSERT_TRUE(into == AlignedBuffer(64 * kKiB, model[id])) << "seed " << kSeed << " step " << i;
      }
    } else {
      store->discard(id);
      model.erase(id);
    }
    ASSERT_EQ(store->used_bytes(), model.size() * 64 * kKiB) << "seed " << kSeed << " step " << i;
  }
}

TEST_P(NvmeStoreTest, NothingIsLeftAfterKill) {
  StorePtr<NvmeStore> store;
  kill_after([&] {
    store = fixture_.make();
    must(write_and_wait(*store, 7, first_));
    must(store->write_async(7, 0, second_.view()));
  });
  EXPECT_TRUE(must(posix_io().list(fixture_.dir())).empty());
}

TEST_P(NvmeStoreTest, DiscardUnderARequestAborts) {
  const ChildResult child = run_in_child([&] {
    const auto store = fixture_.make({.classes = {{8 * kMiB, 2}}, .queue_depth = 1, .block_bytes = 4 * kKiB});
    const AlignedBuffer large(8 * kMiB, 1);
    must(store->write_async(7, 0, large.view()));
    store->discard(7);
    return "survived";
  });
  EXPECT_EQ(child.exit_code, -1) << child.output;
}

}  // namespace
}  // namespace strata::test
