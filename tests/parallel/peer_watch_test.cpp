// When a rank is late or lost, and when it is only slow. Time is an argument.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "watch/peer_watch.h"

namespace strata::detail {
namespace {

using ::testing::HasSubstr;
using State = PeerWatch::State;

class PeerWatchTest : public ::testing::Test {
 protected:
  static constexpr int kOther = 1;
  PeerWatchTest() { watch_.set({.silence_s = 5, .user_code_s = 8, .patience_s = 30}); }

  /// Lets time pass in which this rank listens, and the other one tells where it is if `heard`.
  void pass(double seconds, bool heard) {
    for (double passed = 0; passed < seconds; passed += 0.5) {
      now_ += 500'000'000;
      watch_.tick(now_);
      if (heard) watch_.heard(kOther, other_.position(), now_);
    }
  }
  PeerWatch::Verdict judge(bool waits = true) const { return watch_.judge(kOther, waits, now_); }

  std::int64_t now_ = 1'000'000'000'000;
  RankProgress other_;
  PeerWatch watch_{2, now_};
};

TEST_F(PeerWatchTest, ARankThatIsHeardOfIsWellHoweverLongAnInstructionTakes) {
  other_.begin_step(7);
  other_.begin_micro_batch(2, 112);
  other_.at(3, "linear");
  pass(3600, true);
  EXPECT_EQ(judge().state, State::well);
}

TEST_F(PeerWatchTest, ASilentRankIsLateThenLostAndNamesItsLastInstruction) {
  other_.begin_step(7);
  other_.begin_micro_batch(2, 112);
  other_.at(3, "linear");
  pass(1, true);
  pass(5, false);
  EXPECT_EQ(judge().state, State::well);
  pass(0.5, false);
  EXPECT_EQ(judge().state, State::late);
  EXPECT_THAT(judge().reason, HasSubstr("nothing has been heard of it for 5.5 s"));
  EXPECT_THAT(judge().reason, HasSubstr("last in step 7, micro-batch 2, instruction 3 of 112 (linear)"));
  pass(24, false);
  EXPECT_EQ(judge().state, State::late);
  pass(1, false);
  EXPECT_EQ(judge().state, State::lost);
}

TEST_F(PeerWatchTest, ALateRankThatIsHeardOfAgainIsWell) {
  pass(20, false);
  ASSERT_EQ(judge().state, State::late);
  pass(0.5, true);
  EXPECT_EQ(judge().state, State::well);
}

TEST_F(PeerWatchTest, ARankThatDoesNotComeBackFromUserCodeIsLateThenLost) {
  other_.begin_step(3);
  const RankProgress::UserCode in_source(&other_, "the batch source");
  pass(8.5, true);
  EXPECT_EQ(judge().state, State::well);  // it was first heard of there half a second ago
  pass(0.5, true);
  EXPECT_EQ(judge().state, State::late);
  EXPECT_THAT(judge().reason,
              HasSubstr("it has been in step 3, the batch source for 8.5 s without coming back"));
  pass(22, true);
  EXPECT_EQ(judge().state, State::lost);
}

TEST_F(PeerWatchTest, UserCodeMayTakeAsLongAsItLikesWhileNobodyWaits) {
  other_.begin_step(3);
  const RankProgress::UserCode in_source(&other_, "the batch source");
  pass(100, true);
  EXPECT_EQ(judge(false).state, State::well);
}

TEST_F(PeerWatchTest, UserCodeThatIsUsuallySlowMayTakeTenTimesAsLong) {
  other_.begin_step(3);
  {
    const RankProgress::UserCode in_source(&other_, "the batch source");
    pass(6, true);
  }
  pass(1, true);
  // The last call was seen for 5.5 s, from the first to the last heartbeat.
  const RankProgress::UserCode in_source(&other_, "the batch source");
  pass(27.5, true);
  EXPECT_EQ(judge().state, State::well);
  pass(1, true);
  EXPECT_EQ(judge().state, State::late);
  pass(26.5, true);
  EXPECT_EQ(judge().state, State::late);
  pass(1, true);
  EXPECT_EQ(judge().state, State::lost);
}

// A rank that nobody waits for is not looked at: what it did meanwhile is no call.
TEST_F(PeerWatchTest, ACallIsNotLongerThanItWasSeen) {
  {
    const RankProgress::UserCode in_source(&other_, "the batch source");
    pass(0.5, true);
  }
  now_ += 600'000'000'000;
  watch_.tick(now_, now_ - 250'000'000);
  watch_.heard(kOther, other_.position(), now_);
  const RankProgress::UserCode in_source(&other_, "the batch source");
  pass(31, true);
  EXPECT_EQ(judge().state, State::lost);
}

TEST_F(PeerWatchTest, ARankIsLateBeforeItIsLostHoweverShortThePatience) {
  watch_.set({.patience_s = 2});
  pass(1.5, false);
  EXPECT_EQ(judge().state, State::late);
  pass(1, false);
  EXPECT_EQ(judge().state, State::lost);
  const RankProgress::UserCode in_source(&other_, "the batch source");
  pass(2, true);
  EXPECT_EQ(judge().state, State::late);
  pass(1, true);
  EXPECT_EQ(judge().state, State::lost);
  EXPECT_EQ(within_patience({.patience_s = 1}).heartbeat_s, 0.125);
  EXPECT_EQ(within_patience({}).heartbeat_s, 0.5);
}

TEST_F(PeerWatchTest, ARankThatWasItselfStoppedBlamesNobody) {
  pass(1, true);
  now_ += 60'000'000'000;
  watch_.tick(now_);
  EXPECT_EQ(judge().state, State::well);
  pass(6, false);
  EXPECT_EQ(judge().state, State::late);
}

TEST_F(PeerWatchTest, OnlyTimeInWhichThisProcessWouldHaveListenedIsAStop) {
  const RankProgress::UserCode in_source(&other_, "the batch source");
  pass(1, true);
  now_ += 60'000'000'000;
  watch_.tick(now_, now_ - 60'000'000'000);
  EXPECT_EQ(judge().state, State::well);
  now_ += 60'000'000'000;
  watch_.tick(now_, now_ - 250'000'000);
  watch_.heard(kOther, other_.position(), now_);
  EXPECT_EQ(judge().state, State::lost);
}

TEST(RankProgressTest, APositionIsReadableText) {
  RankProgress progress;
  EXPECT_EQ(to_string(progress.position()), "outside of a step (starting)");
  progress.begin_step(12);
  EXPECT_EQ(to_string(progress.position()), "in step 12");
  progress.begin_micro_batch(3, 112);
  {
    const RankProgress::UserCode in_source(&progress, "the batch source");
    EXPECT_EQ(to_string(progress.position()), "in step 12, micro-batch 3, the batch source");
  }
  progress.at(45, "a name that is longer than the room for names, which is cut");
  EXPECT_EQ(to_string(progress.position()),
            "in step 12, micro-batch 3, instruction 45 of 112 (a name that is longer than the room for)");
  progress.outside("evaluating");
  EXPECT_EQ(to_string(progress.position()), "outside of a step (evaluating)");
  const RankProgress::UserCode in_source(&progress, "the batch source");
  EXPECT_EQ(to_string(progress.position()), "outside of a step, the batch source");
}

TEST(RankProgressTest, EveryChangeIsCounted) {
  RankProgress progress;
  std::uint64_t before = progress.position().changes;
  const auto changed = [&] {
    return progress.position().changes > std::exchange(before, progress.position().changes);
  };
  progress.begin_step(1);
  EXPECT_TRUE(changed());
  EXPECT_FALSE(changed());
  progress.at(1, "linear");
  EXPECT_TRUE(changed());
}

}  // namespace
}  // namespace strata::detail
