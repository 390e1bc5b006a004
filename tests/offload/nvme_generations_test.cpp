// Snapshots, which are kept until commit() or rollback().
#include <strata/offload/nvme_store.h>

#include <gtest/gtest.h>

#include <optional>

#include <strata/runtime/rng.h>

#include "store_fixture.h"
#include "support/child.h"

namespace strata::test {
namespace {

class NvmeGenerationsTest : public testing::TestWithParam<TestIoBackend> {
 protected:
  void SetUp() override {
    std::string why;
    if (GetParam() == TestIoBackend::uring && !uring_works(&why)) GTEST_SKIP() << why;
  }
  // One block per request and one thread: the n-th write call belongs to the n-th request.
  StorePtr<NvmeStore> make(std::uint32_t slots = 4) {
    return fixture_.make({.classes = {{kSlotBytes, slots}}, .block_bytes = kSlotBytes, .io_threads = 1});
  }
  static IoTicket write_snapshot(NvmeStore& store, std::uint64_t id, const AlignedBuffer& from) {
    return must(store.write_async(id, 0, from.view(), WriteMode::snapshot));
  }
  static Status snapshot_and_wait(NvmeStore& store, std::uint64_t id, const AlignedBuffer& from) {
    return store.wait(write_snapshot(store, id, from));
  }
  void expect_stored(NvmeStore& store, std::uint64_t id, const AlignedBuffer& expected) {
    must(read_and_wait(store, id, read_));
    EXPECT_TRUE(read_ == expected) << "id " << id;
  }
  StoreFixture fixture_{GetParam()};
  AlignedBuffer first_{kSlotBytes, 1}, second_{kSlotBytes, 2}, third_{kSlotBytes, 3};
  AlignedBuffer read_{kSlotBytes};
};

class NvmeSnapshotFaultTest : public NvmeGenerationsTest {};

INSTANTIATE_TEST_SUITE_P(IoBackends, NvmeGenerationsTest,
                         testing::Values(TestIoBackend::uring, TestIoBackend::threads,
                                         TestIoBackend::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });
INSTANTIATE_TEST_SUITE_P(IoBackends, NvmeSnapshotFaultTest,
                         testing::Values(TestIoBackend::threads, TestIoBackend::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });

TEST_P(NvmeGenerationsTest, SnapshotHoldsItsSlotUntilCommit) {
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  must(snapshot_and_wait(*store, 7, second_));
  expect_stored(*store, 7, second_);
  EXPECT_EQ(store->used_bytes(), 2 * kSlotBytes);
  store->commit(7);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
  expect_stored(*store, 7, second_);
}

TEST_P(NvmeGenerationsTest, RollbackPublishesTheSnapshotAsItWas) {
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  const StoredInfo before = *store->find(7);
  must(snapshot_and_wait(*store, 7, second_));
  store->rollback(7);
  EXPECT_EQ(store->find(7)->generation, before.generation);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
  expect_stored(*store, 7, first_);
  must(write_and_wait(*store, 7, third_));
  EXPECT_GT(store->find(7)->generation, before.generation + 1);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
}

TEST_P(NvmeGenerationsTest, RollbackUndoesAllWritesSinceTheSnapshot) {
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  must(snapshot_and_wait(*store, 7, second_));
  must(write_and_wait(*store, 7, third_));
  must(snapshot_and_wait(*store, 7, second_));
  EXPECT_EQ(store->used_bytes(), 2 * kSlotBytes);
  store->rollback(7);
  expect_stored(*store, 7, first_);
}

TEST_P(NvmeGenerationsTest, RollbackOfAFirstWriteLeavesNothing) {
  const auto store = make(1);
  must(snapshot_and_wait(*store, 7, first_));
  store->rollback(7);
  EXPECT_FALSE(store->find(7).has_value());
  must(write_and_wait(*store, 8, second_));
}

TEST_P(NvmeGenerationsTest, CommitAndRollbackWithoutASnapshotDoNothing) {
  const auto store = make();
  store->commit(7);
  store->rollback(7);
  must(write_and_wait(*store, 7, first_));
  must(write_and_wait(*store, 7, second_));
  store->rollback(7);
  expect_stored(*store, 7, second_);
  must(snapshot_and_wait(*store, 7, third_));
  store->commit(7);
  store->rollback(7);
  expect_stored(*store, 7, third_);
}

// All three writes are in flight together and may complete in any order; on the fake ring in a random one.
TEST_P(NvmeGenerationsTest, TheSnapshotIsTheNewestEarlierWriteWhicheverCompletesFirst) {
  fixture_.ring().shuffle = true;
  const auto store = fixture_.make({.classes = {{kSlotBytes, 5}}, .block_bytes = 16 * kKiB});
  must(write_and_wait(*store, 7, third_));
  const IoTicket older = must(store->write_async(7, 0, first_.view()));
  const IoTicket snapshotting = write_snapshot(*store, 7, second_);
  const IoTicket newer = must(store->write_async(7, 0, third_.view()));
  for (const IoTicket ticket : {older, snapshotting, newer}) must(store->wait(ticket));
  EXPECT_EQ(store->used_bytes(), 2 * kSlotBytes);
  expect_stored(*store, 7, third_);
  store->rollback(7);
  expect_stored(*store, 7, first_);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
}

TEST_P(NvmeGenerationsTest, InFlightReadOfASnapshotOutlivesNewWrites) {
  const auto store = make(5);
  must(write_and_wait(*store, 7, first_));
  const IoTicket reading = must(store->read_async(7, read_.view()));
  must(snapshot_and_wait(*store, 7, second_));
  must(store->wait(reading));
  EXPECT_TRUE(read_ == first_);
  store->commit(7);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
}

TEST_P(NvmeGenerationsTest, DiscardFreesTheSnapshotToo) {
  const auto store = make(2);
  must(write_and_wait(*store, 7, first_));
  must(snapshot_and_wait(*store, 7, second_));
  store->discard(7);
  EXPECT_EQ(store->used_bytes(), 0u);
  store->rollback(7);
  EXPECT_FALSE(store->find(7).has_value());
  must(write_and_wait(*store, 1, first_));
  must(write_and_wait(*store, 2, second_));
  expect_stored(*store, 1, first_);
}

TEST_P(NvmeGenerationsTest, ClassFullOfSnapshotsRefusesAndACommitMakesRoom) {
  const auto store = make(2);
  must(write_and_wait(*store, 7, first_));
  must(snapshot_and_wait(*store, 7, second_));
  EXPECT_EQ(store->write_async(8, 0, third_.view()).status().code(), Code::does_not_fit);
  store->commit(7);
  must(write_and_wait(*store, 8, third_));
}

// Compares with a model of two values per id: the published one and the one that a rollback would publish.
TEST_P(NvmeGenerationsTest, BehavesAsTwoMapsUnderRandomOperations) {
  struct Model {
    std::optional<std::uint64_t> live, old;  // seeds
    bool keeps = false;
  };
  constexpr std::uint64_t kIds = 3, kSeed = 21;
  constexpr std::size_t kBytes = 16 * kKiB;
  const auto store = fixture_.make({.classes = {{kBytes, 8}}, .block_bytes = 8 * kKiB, .max_requests = 3});
  std::array<Model, kIds> models;
  const Rng rng(kSeed, 0);
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t id = rng.below(2 * i, kIds), what = rng.below(2 * i + 1, 10);
    Model& model = models[id];
    if (what < 6) {
      const bool keeps = what < 3;
      if (keeps && !model.keeps) model = {model.live, model.live, true};
      const AlignedBuffer from(kBytes, i);
      must(store->wait(
          must(store->write_async(id, 0, from.view(), keeps ? WriteMode::snapshot : WriteMode::replace))));
      model.live = i;
    } else if (what < 8) {
      store->commit(id);
      model = {model.live, {}, false};
    } else if (what < 9) {
      store->rollback(id);
      if (model.keeps) model = {model.old, {}, false};
    } else {
      store->discard(id);
      model = {};
    }
    std::uint64_t slots = 0;
    for (const Model& each : models) slots += (each.live ? 1u : 0u) + (each.keeps && each.old ? 1u : 0u);
    ASSERT_EQ(store->used_bytes(), slots * kBytes) << "seed " << kSeed << " step " << i;
    const AlignedBuffer into(kBytes);
    ASSERT_EQ(read_and_wait(*store, id, into).code(), model.live ? Code::ok : Code::not_found) << i;
    if (model.live) {
      ASSERT_TRUE(into == AlignedBuffer(kBytes, *model.live)) << "seed " << kSeed << " step " << i;
    }
  }
}

TEST_P(NvmeGenerationsTest, RollbackUnderARequestAborts) {
  for (const bool commits : {false, true}) {
    const ChildResult child = run_in_child([&] {
      const auto store =
          fixture_.make({.classes = {{8 * kMiB, 2}}, .queue_depth = 1, .block_bytes = 4 * kKiB});
      const AlignedBuffer large(8 * kMiB, 1);
      write_snapshot(*store, 7, large);
      commits ? store->commit(7) : store->rollback(7);
      return "survived";
    });
    EXPECT_EQ(child.exit_code, -1) << child.output;
  }
}

TEST_P(NvmeSnapshotFaultTest, SnapshotWriteThatFailsLeavesTheOldGenerationAndRollbackChangesNothing) {
  const auto store = make(3);
  must(write_and_wait(*store, 7, first_));
  fixture_.faults().add({IoCall::write, FaultKind::fail, 2, true});
  EXPECT_EQ(snapshot_and_wait(*store, 7, second_).code(), Code::io_error);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
  store->rollback(7);
  expect_stored(*store, 7, first_);
}

TEST_P(NvmeSnapshotFaultTest, SnapshotWriteThatMovesToAnotherSlotKeepsTheOldGeneration) {
  const auto store = make();
  must(write_and_wait(*store, 7, first_));
  fixture_.faults().add({IoCall::write, FaultKind::fail, 2});
  must(snapshot_and_wait(*store, 7, second_));
  EXPECT_EQ(store->counters().bad_slots, 1u);
  expect_stored(*store, 7, second_);
  store->rollback(7);
  expect_stored(*store, 7, first_);
}

TEST_P(NvmeSnapshotFaultTest, FirstSnapshotWriteThatFailsLeavesNoId) {
  const auto store = make(2);
  fixture_.faults().add({IoCall::write, FaultKind::fail, 1, true});
  EXPECT_EQ(snapshot_and_wait(*store, 7, first_).code(), Code::io_error);
  EXPECT_FALSE(store->find(7).has_value());
  store->rollback(7);
  store->commit(7);
  EXPECT_EQ(store->used_bytes(), 0u);
}

}  // namespace
}  // namespace strata::test
