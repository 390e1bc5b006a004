// The power fails while a checkpoint is saved: what was committed before is there afterwards, and complete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/session/checkpoint.h>

#include "engine/tiny_run.h"
#include "support/sim_disk.h"

namespace strata {
namespace {

using test::SimDisk;
using test::tiny_programs;
using test::TinyRun;

class PowerLossTest : public testing::Test {
 protected:
  PowerLossTest()
      : saver_(must(Engine::plan(tiny_programs(), {.chunk_elems = 8192}))),
        loader_(must(Engine::plan(tiny_programs(), {}))) {
    must(saver_.engine->initialize(3));
    saver_.train(1);
    old_ = must(saver_.engine->state_digest());
    must(save_checkpoint(*saver_.engine, old_disk_, "run/checkpoints", {}, 0));
    saver_.train(1);
    fresh_ = must(saver_.engine->state_digest());
  }
  /// A disk on which the first checkpoint is durable.
  std::unique_ptr<SimDisk> disk() {
    old_disk_.make_durable();
    return old_disk_.after_power_failure(0);
  }
  std::string digest_of_newest(SimDisk& disk) {
    must(load_checkpoint(*loader_.engine, disk, must(newest_checkpoint(disk, "run/checkpoints"))));
    return must(loader_.engine->state_digest());
  }

  SimDisk old_disk_;
  TinyRun saver_, loader_;
  std::string old_, fresh_;
};

TEST_F(PowerLossTest, AtEveryCallOfASaveTheOldOrTheNewCheckpointIsComplete) {
  for (std::uint64_t nth = 1;; ++nth) {
    const auto running = disk();
    running->cut_power_at(nth);
    const bool saved = save_checkpoint(*saver_.engine, *running, "run/checkpoints", {}, 0).has_value();
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(str("call ", nth, ", seed ", seed));
      const auto left = running->after_power_failure(seed);
      const std::string found = digest_of_newest(*left);
      ASSERT_TRUE(found == fresh_ || (!saved && found == old_));
      // Leftovers must not hinder the next save.
      must(save_checkpoint(*saver_.engine, *left, "run/checkpoints", {}, 0));
      ASSERT_EQ(digest_of_newest(*left), fresh_);
    }
    if (!running->is_cut()) {
      EXPECT_TRUE(saved);
      EXPECT_GT(nth, 20u);
      return;
    }
  }
}

// The old checkpoint is removed only once the new one is durable.
TEST_F(PowerLossTest, WithOneKeptThereIsAlwaysOneCheckpoint) {
  for (std::uint64_t nth = 1;; ++nth) {
    const auto running = disk();
    running->cut_power_at(nth);
    (void)save_checkpoint(*saver_.engine, *running, "run/checkpoints", {}, 1);
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      SCOPED_TRACE(str("call ", nth, ", seed ", seed));
      const auto left = running->after_power_failure(seed);
      ASSERT_THAT(digest_of_newest(*left), testing::AnyOf(old_, fresh_));
    }
    if (!running->is_cut()) return;
  }
}

}  // namespace
}  // namespace strata
