#include <gtest/gtest.h>

#include "chunk/parts_fixture.h"
#include "eviction.h"

namespace strata {
namespace {

using test::bare_placement;
using test::param;
using test::PartsFixture;
using test::small_layout;
using test::with_homes;

constexpr std::int32_t kNow = UseSchedule::kImmediately;

/// Four chunks whose parameters have their home on nvme, and windows of two slots.
struct VictimFixture : PartsFixture {
  VictimFixture()
      : PartsFixture(small_layout(4),
                     with_homes(bare_placement(small_layout(4), 2, 2), Payload::param, Tier::nvme)) {}
  std::optional<PayloadKey> victim(Tier tier, std::int32_t needed_at = kNow) const {
    return detail::choose_victim({placement, uses, residency, slots, write_backs}, param(3), tier, needed_at);
  }
};

TEST(ChooseVictimTest, AWindowWithoutCopiesHasNoVictim) {
  VictimFixture fixture;
  EXPECT_EQ(fixture.victim(Tier::device), std::nullopt);
}

TEST(ChooseVictimTest, TheCopyWhoseNextUseIsLatestIsEvicted) {
  VictimFixture fixture;
  const std::vector<Use> uses = {
      {1, param(0), Tier::device}, {2, param(1), Tier::device}, {5, param(0), Tier::device}};
  fixture.uses.set_uses(uses, 6);
  for (const ChunkId c : {0u, 1u}) fixture.place_clean(param(c), Tier::device);
  EXPECT_EQ(fixture.victim(Tier::device), param(1));
  fixture.uses.set_position(2);
  EXPECT_EQ(fixture.victim(Tier::device), param(0));
}

TEST(ChooseVictimTest, ACleanCopyIsEvictedAmongEquals) {
  for (const ChunkId clean : {0u, 1u}) {
    VictimFixture fixture;
    for (const ChunkId c : {0u, 1u}) {
      if (c == clean)
        fixture.place_clean(param(c), Tier::device);
      else
        fixture.place_written(param(c), Tier::device, fixture.compute);
    }
    EXPECT_EQ(fixture.victim(Tier::device), param(clean));
  }
}

TEST(ChooseVictimTest, PinnedCopiesAreNoCandidates) {
  VictimFixture fixture;
  for (const ChunkId c : {0u, 1u}) {
    fixture.place_clean(param(c), Tier::device);
    EXPECT_EQ(fixture.victim(Tier::device), param(c));
    fixture.residency.pin(param(c), Tier::device, Intent::read);
    EXPECT_EQ(fixture.victim(Tier::device), std::nullopt);
  }
  fixture.residency.unpin(param(0), Tier::device, Intent::read);
  EXPECT_EQ(fixture.victim(Tier::device), param(0));
  fixture.residency.unpin(param(1), Tier::device, Intent::read);
}

TEST(ChooseVictimTest, TheOnlyCopyWithoutAHomeIsNoCandidate) {
  VictimFixture fixture;
  const PayloadKey grad{0, Payload::grad};
  fixture.place_written(grad, Tier::device, fixture.compute);
  EXPECT_EQ(fixture.victim(Tier::device), std::nullopt);
  fixture.place_clean(grad, Tier::pinned);
  EXPECT_EQ(fixture.victim(Tier::device), grad);
}

TEST(ChooseVictimTest, NothingNeededSoonerIsEvicted) {
  VictimFixture fixture;
  const Use use{3, param(0), Tier::device};
  fixture.uses.set_uses({&use, 1}, 6);
  fixture.place_clean(param(0), Tier::device);
  EXPECT_EQ(fixture.victim(Tier::device, 3), std::nullopt);
  EXPECT_EQ(fixture.victim(Tier::device, 2), param(0));
}

TEST(ChooseVictimTest, ARecentWriteBackIsEvictedOnlyForAnImmediateNeed) {
  VictimFixture fixture;
  fixture.push_written(param(0), fixture.cpu);
  EXPECT_EQ(fixture.victim(Tier::pinned, 0), std::nullopt);
  EXPECT_EQ(fixture.victim(Tier::pinned), param(0));
  must(fixture.write_backs.wait_all());
  EXPECT_EQ(fixture.victim(Tier::pinned, 0), param(0));
}

}  // namespace
}  // namespace strata
