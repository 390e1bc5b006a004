#include <array>

#include <gtest/gtest.h>

#include <strata/chunk/use_schedule.h>

namespace strata {
namespace {

constexpr PayloadKey kFirst{0, Payload::param}, kSecond{1, Payload::param};

UseSchedule schedule_of(std::initializer_list<Use> uses, std::int32_t cycle) {
  UseSchedule schedule(2);
  schedule.set_uses({uses.begin(), uses.size()}, cycle);
  return schedule;
}

TEST(UseScheduleTest, TheNextUseIsTheFirstThatHasNotPassed) {
  UseSchedule schedule =
      schedule_of({{1, kFirst, Tier::device}, {2, kSecond, Tier::device}, {4, kFirst, Tier::device}}, 6);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 1);
  schedule.set_position(2);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 4);
  EXPECT_EQ(schedule.next_use(kSecond, Tier::device), 2);
}

TEST(UseScheduleTest, AfterTheLastUseComesTheFirstOfTheNextRound) {
  UseSchedule schedule = schedule_of({{1, kFirst, Tier::device}, {3, kFirst, Tier::device}}, 6);
  schedule.set_position(4);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 7);
}

TEST(UseScheduleTest, APayloadWithoutUsesInATierIsNeverUsedThere) {
  const UseSchedule schedule = schedule_of({{1, kFirst, Tier::device}, {2, kSecond, Tier::nvme}}, 6);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::pinned), UseSchedule::kNever);
  EXPECT_EQ(schedule.next_use(kSecond, Tier::device), UseSchedule::kNever);
}

TEST(UseScheduleTest, AUseAtThisPositionIsPendingUntilItIsMade) {
  UseSchedule schedule = schedule_of({{2, kFirst, Tier::device}, {5, kFirst, Tier::device}}, 6);
  schedule.set_position(2);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 2);
  schedule.mark_used(kSecond);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 2);
  schedule.mark_used(kFirst);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 5);
}

// A position returns in every round, and its use is then pending again.
TEST(UseScheduleTest, AUseThatWasMadeIsPendingAgainInTheNextRound) {
  UseSchedule schedule = schedule_of({{2, kFirst, Tier::device}}, 6);
  schedule.set_position(2);
  schedule.mark_used(kFirst);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 8);
  schedule.set_position(2);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 2);
}

TEST(UseScheduleTest, NewUsesReplaceTheOldOnesAndStartAtPositionZero) {
  UseSchedule schedule = schedule_of({{1, kFirst, Tier::device}}, 6);
  schedule.set_position(5);
  const Use only{0, kSecond, Tier::pinned};
  schedule.set_uses({&only, 1}, 3);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), UseSchedule::kNever);
  EXPECT_EQ(schedule.next_use(kSecond, Tier::pinned), 0);
}

TEST(UseScheduleTest, WhatFollowsComesBeforeTheNextRound) {
  UseSchedule schedule = schedule_of({{1, kFirst, Tier::device}, {3, kFirst, Tier::device}}, 6);
  const std::array<Use, 2> uses = {Use{2, kSecond, Tier::device}, Use{4, kSecond, Tier::device}};
  const FirstUses other(2, uses, 5), nothing(2, {}, 7);
  const std::array<const FirstUses*, 2> following = {&nothing, &other};
  schedule.set_following(following);
  schedule.set_position(2);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 3);
  EXPECT_EQ(schedule.next_use(kSecond, Tier::device), 6 + 7 + 2);
  EXPECT_EQ(schedule.next_use(kSecond, Tier::pinned), UseSchedule::kNever);
  schedule.set_position(4);
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 6 + 7 + 5 + 1);
  schedule.set_following({});
  EXPECT_EQ(schedule.next_use(kFirst, Tier::device), 6 + 1);
  EXPECT_EQ(schedule.next_use(kSecond, Tier::device), UseSchedule::kNever);
}

}  // namespace
}  // namespace strata
