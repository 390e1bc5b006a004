// Generations that are kept until they are accepted or restored.
#include <strata/offload/nvme_store.h>

#include <gtest/gtest.h>

#include <optional>

#include <strata/runtime/rng.h>

#include "store_rig.h"
#include "support/child.h"

namespace strata::test {
namespace {

class NvmeGenerationsTest : public testing::TestWithParam<RigEngine> {
 protected:
  void SetUp() override {
    std::string why;
    if (GetParam() == RigEngine::uring && !uring_works(&why)) GTEST_SKIP() << why;
  }
  // One block a request and one thread: the n-th write call is the n-th request's.
  std::unique_ptr<NvmeStore> make(std::uint32_t slots = 4) {
    return rig_.make({.classes = {{kSlotBytes, slots}}, .block_bytes = kSlotBytes, .io_threads = 1});
  }
  static Ticket keep(NvmeStore& store, std::uint64_t id, const AlignedBuffer& from) {
    return must(store.write_async(id, 0, from.view(), OldGeneration::keep));
  }
  static Status keep_now(NvmeStore& store, std::uint64_t id, const AlignedBuffer& from) {
    return store.wait(keep(store, id, from));
  }
  void expect_stored(NvmeStore& store, std::uint64_t id, const AlignedBuffer& expected) {
    must(read_now(store, id, read_));
    EXPECT_TRUE(read_ == expected) << "id " << id;
  }
  StoreRig rig_{GetParam()};
  AlignedBuffer first_{kSlotBytes, 1}, second_{kSlotBytes, 2}, third_{kSlotBytes, 3};
  AlignedBuffer read_{kSlotBytes};
};

class NvmeKeptFaultTest : public NvmeGenerationsTest {};

INSTANTIATE_TEST_SUITE_P(Engines, NvmeGenerationsTest,
                         testing::Values(RigEngine::uring, RigEngine::threads, RigEngine::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });
INSTANTIATE_TEST_SUITE_P(Engines, NvmeKeptFaultTest,
                         testing::Values(RigEngine::threads, RigEngine::fake_ring),
                         [](const auto& engine) { return name_of(engine.param); });

TEST_P(NvmeGenerationsTest, KeptGenerationHoldsItsSlotUntilTheNewOneIsAccepted) {
  const auto store = make();
  must(write_now(*store, 7, first_));
  must(keep_now(*store, 7, second_));
  expect_stored(*store, 7, second_);
  EXPECT_EQ(store->used_bytes(), 2 * kSlotBytes);
  store->accept(7);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
  expect_stored(*store, 7, second_);
}

TEST_P(NvmeGenerationsTest, RestoredGenerationIsReadAgainAsItWas) {
  const auto store = make();
  must(write_now(*store, 7, first_));
  const StoredInfo before = *store->find(7);
  must(keep_now(*store, 7, second_));
  store->restore(7);
  EXPECT_EQ(store->find(7)->generation, before.generation);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
  expect_stored(*store, 7, first_);
  must(write_now(*store, 7, third_));
  EXPECT_GT(store->find(7)->generation, before.generation + 1);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
}

TEST_P(NvmeGenerationsTest, RestoreTakesBackAllWritesFromTheFirstThatKept) {
  const auto store = make();
  must(write_now(*store, 7, first_));
  must(keep_now(*store, 7, second_));
  must(write_now(*store, 7, third_));
  must(keep_now(*store, 7, second_));
  EXPECT_EQ(store->used_bytes(), 2 * kSlotBytes);
  store->restore(7);
  expect_stored(*store, 7, first_);
}

TEST_P(NvmeGenerationsTest, RestoreOfAFirstWriteLeavesNothing) {
  const auto store = make(1);
  must(keep_now(*store, 7, first_));
  store->restore(7);
  EXPECT_FALSE(store->find(7).has_value());
  must(write_now(*store, 8, second_));
}

TEST_P(NvmeGenerationsTest, WithoutAKeepingWriteNothingHappens) {
  const auto store = make();
  store->accept(7);
  store->restore(7);
  must(write_now(*store, 7, first_));
  must(write_now(*store, 7, second_));
  store->restore(7);
  expect_stored(*store, 7, second_);
  must(keep_now(*store, 7, third_));
  store->accept(7);
  store->restore(7);
  expect_stored(*store, 7, third_);
}

// All three are in flight together, and the engines complete them in any order, the fake ring in a random
// one.
TEST_P(NvmeGenerationsTest, TheNewestBeforeTheKeepingWriteIsKeptWhicheverCompletesFirst) {
  rig_.ring().shuffle = true;
  const auto store = rig_.make({.classes = {{kSlotBytes, 5}}, .block_bytes = 16 * kKiB});
  must(write_now(*store, 7, third_));
  const Ticket older = must(store->write_async(7, 0, first_.view()));
  const Ticket keeping = keep(*store, 7, second_);
  const Ticket newer = must(store->write_async(7, 0, third_.view()));
  for (const Ticket ticket : {older, keeping, newer}) must(store->wait(ticket));
  EXPECT_EQ(store->used_bytes(), 2 * kSlotBytes);
  expect_stored(*store, 7, third_);
  store->restore(7);
  expect_stored(*store, 7, first_);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
}

TEST_P(NvmeGenerationsTest, ReadUnderWayOfWhatIsKeptOutlivesNewWrites) {
  const auto store = make(5);
  must(write_now(*store, 7, first_));
  const Ticket reading = must(store->read_async(7, read_.view()));
  must(keep_now(*store, 7, second_));
  must(store->wait(reading));
  EXPECT_TRUE(read_ == first_);
  store->accept(7);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
}

TEST_P(NvmeGenerationsTest, DiscardFreesWhatIsKeptToo) {
  const auto store = make(2);
  must(write_now(*store, 7, first_));
  must(keep_now(*store, 7, second_));
  store->discard(7);
  EXPECT_EQ(store->used_bytes(), 0u);
  store->restore(7);
  EXPECT_FALSE(store->find(7).has_value());
  must(write_now(*store, 1, first_));
  must(write_now(*store, 2, second_));
  expect_stored(*store, 1, first_);
}

TEST_P(NvmeGenerationsTest, ClassFullOfKeptGenerationsRefusesAndAnAcceptMakesRoom) {
  const auto store = make(2);
  must(write_now(*store, 7, first_));
  must(keep_now(*store, 7, second_));
  EXPECT_EQ(store->write_async(8, 0, third_.view()).status().code(), Code::does_not_fit);
  store->accept(7);
  must(write_now(*store, 8, third_));
}

// Against two plain values for each id: what is published, and what a restore would bring back.
TEST_P(NvmeGenerationsTest, BehavesAsTwoMapsUnderRandomOperations) {
  struct Model {
    std::optional<std::uint64_t> live, old;  // seeds
    bool keeps = false;
  };
  constexpr std::uint64_t kIds = 3, kSeed = 21;
  constexpr std::size_t kBytes = 16 * kKiB;
  const auto store = rig_.make({.classes = {{kBytes, 8}}, .block_bytes = 8 * kKiB, .request_slots = 3});
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
          must(store->write_async(id, 0, from.view(), keeps ? OldGeneration::keep : OldGeneration::retire))));
      model.live = i;
    } else if (what < 8) {
      store->accept(id);
      model = {model.live, {}, false};
    } else if (what < 9) {
      store->restore(id);
      if (model.keeps) model = {model.old, {}, false};
    } else {
      store->discard(id);
      model = {};
    }
    std::uint64_t slots = 0;
    for (const Model& each : models) slots += (each.live ? 1u : 0u) + (each.keeps && each.old ? 1u : 0u);
    ASSERT_EQ(store->used_bytes(), slots * kBytes) << "seed " << kSeed << " step " << i;
    const AlignedBuffer into(kBytes);
    ASSERT_EQ(read_now(*store, id, into).code(), model.live ? Code::ok : Code::not_found) << i;
    if (model.live) {
      ASSERT_TRUE(into == AlignedBuffer(kBytes, *model.live)) << "seed " << kSeed << " step " << i;
    }
  }
}

TEST_P(NvmeGenerationsTest, RestoreUnderARequestAborts) {
  for (const bool accepts : {false, true}) {
    const ChildResult child = run_in_child([&] {
      const auto store = rig_.make({.classes = {{8 * kMiB, 2}}, .queue_depth = 1, .block_bytes = 4 * kKiB});
      const AlignedBuffer large(8 * kMiB, 1);
      keep(*store, 7, large);
      accepts ? store->accept(7) : store->restore(7);
      return "survived";
    });
    EXPECT_EQ(child.exit_code, -1) << child.output;
  }
}

TEST_P(NvmeKeptFaultTest, KeepingWriteThatFailsLeavesTheOldGenerationAndRestoreChangesNothing) {
  const auto store = make(3);
  must(write_now(*store, 7, first_));
  rig_.faults().add({IoCall::write, FaultKind::fail, 2, true});
  EXPECT_EQ(keep_now(*store, 7, second_).code(), Code::io_error);
  EXPECT_EQ(store->used_bytes(), kSlotBytes);
  store->restore(7);
  expect_stored(*store, 7, first_);
}

TEST_P(NvmeKeptFaultTest, KeepingWriteThatMovesToAnotherSlotKeepsTheOldGeneration) {
  const auto store = make();
  must(write_now(*store, 7, first_));
  rig_.faults().add({IoCall::write, FaultKind::fail, 2});
  must(keep_now(*store, 7, second_));
  EXPECT_EQ(store->counters().bad_slots, 1u);
  expect_stored(*store, 7, second_);
  store->restore(7);
  expect_stored(*store, 7, first_);
}

TEST_P(NvmeKeptFaultTest, FirstWriteThatKeepsAndFailsLeavesNoId) {
  const auto store = make(2);
  rig_.faults().add({IoCall::write, FaultKind::fail, 1, true});
  EXPECT_EQ(keep_now(*store, 7, first_).code(), Code::io_error);
  EXPECT_FALSE(store->find(7).has_value());
  store->restore(7);
  store->accept(7);
  EXPECT_EQ(store->used_bytes(), 0u);
}

}  // namespace
}  // namespace strata::test
