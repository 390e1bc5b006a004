#include <gtest/gtest.h>

#include <strata/chunk/residency_table.h>

namespace strata {
namespace {

constexpr PayloadKey kKey{1, Payload::m};

TEST(ResidencyTest, TransitionsAreLegalExactlyWhereTheTableSaysSo) {
  constexpr std::array<std::array<bool, 5>, 5> kLegal = {{
      // to:  absent filling clean  dirty  writing_back      from:
      {{false, true, false, true, false}},  // absent
      {{true, false, true, false, false}},  // filling
      {{true, false, false, true, false}},  // clean
      {{true, false, false, false, true}},  // dirty
      {{false, false, true, true, false}},  // writing_back
  }};
  for (std::size_t from = 0; from < 5; ++from)
    for (std::size_t to = 0; to < 5; ++to)
      EXPECT_EQ(is_valid_transition(static_cast<Residency>(from), static_cast<Residency>(to)),
                kLegal[from][to])
          << to_string(static_cast<Residency>(from)) << " -> " << to_string(static_cast<Residency>(to));
}

TEST(ResidencyTableTest, AStateBelongsToOnePayloadInOneTier) {
  ResidencyTable table(2);
  table.set_state(kKey, Tier::pinned, Residency::filling);
  for (std::size_t i = 0; i < table.n_keys(); ++i)
    for (const Tier tier : kAllTiers)
      EXPECT_EQ(table.has_copy(key_at(i), tier), key_at(i) == kKey && tier == Tier::pinned);
  EXPECT_TRUE(table.has_copy_outside(kKey, Tier::device));
  EXPECT_FALSE(table.has_copy_outside(kKey, Tier::pinned));
}

TEST(ResidencyTableTest, TheNewestCopyIsTheOnlyOneAndOfANewGeneration) {
  ResidencyTable table(2);
  for (const Tier tier : {Tier::pinned, Tier::nvme}) {
    table.set_state(kKey, tier, Residency::filling);
    table.set_state(kKey, tier, Residency::clean);
  }
  table.make_newest(kKey, Tier::device);
  EXPECT_EQ(table.state(kKey, Tier::device), Residency::dirty);
  EXPECT_FALSE(table.has_copy_outside(kKey, Tier::device));
  EXPECT_EQ(table.generation(kKey), 1u);
  table.make_newest(kKey, Tier::device);  // written again
  EXPECT_EQ(table.state(kKey, Tier::device), Residency::dirty);
  EXPECT_EQ(table.generation(kKey), 2u);
}

TEST(ResidencyTableTest, ContentsThatReachedATierLeaveCleanCopiesElsewhere) {
  ResidencyTable table(2);
  table.make_newest(kKey, Tier::device);
  table.set_state(kKey, Tier::pinned, Residency::filling);
  table.clean_copies_outside(kKey, Tier::pinned);
  EXPECT_EQ(table.state(kKey, Tier::device), Residency::clean);
  EXPECT_EQ(table.state(kKey, Tier::pinned), Residency::filling);
}

TEST(ResidencyTableTest, TheEndOfAReadersPinDoesNotEndTheWriters) {
  ResidencyTable table(2);
  table.pin(kKey, Tier::device, Intent::update);
  EXPECT_TRUE(table.is_pinned_for_writing(kKey, Tier::device));
  table.pin(kKey, Tier::device, Intent::read);
  table.unpin(kKey, Tier::device, Intent::read);
  EXPECT_TRUE(table.is_pinned_for_writing(kKey, Tier::device));
  table.unpin(kKey, Tier::device, Intent::update);
  EXPECT_FALSE(table.is_pinned_for_writing(kKey, Tier::device));
  EXPECT_FALSE(table.is_pinned(kKey, Tier::device));
}

using ResidencyTableDeathTest = testing::Test;

TEST(ResidencyTableDeathTest, BrokenInvariantsAbort) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  ResidencyTable table(2);
  EXPECT_DEATH(table.set_state(kKey, Tier::nvme, Residency::clean),
               "chunk 1 m in nvme cannot change from state absent to clean");
  EXPECT_DEATH(table.unpin(kKey, Tier::device, Intent::read), "is unpinned twice");
  EXPECT_DEATH(
      {
        table.set_state(kKey, Tier::pinned, Residency::filling);
        table.pin(kKey, Tier::pinned, Intent::read);
        table.make_newest(kKey, Tier::device);
      },
      "chunk 1 m is pinned in pinned and cannot be written in device");
  EXPECT_DEATH(
      {
        ResidencyTable pinned(2);
        pinned.pin(kKey, Tier::pinned, Intent::read);
      },
      "destroyed while a pin is alive");
}

}  // namespace
}  // namespace strata
