#include "mode_choice.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

/// Steps of a run in which a step that waits for the norm takes `waits` and one that speculates `trusts`; how
/// many of them speculated.
int steps(ModeChoice& choice, int n, double waits, double trusts, bool right = true) {
  int speculated = 0;
  for (int i = 0; i < n; ++i) {
    const bool kind = choice.speculates();
    speculated += kind;
    choice.guessed(right);
    choice.took(kind, kind ? trusts : waits);
  }
  return speculated;
}

TEST(ModeChoiceTest, TimesBothKindsAndStaysWithTheFasterOne) {
  constexpr int kMany = 500, kTrials = (ModeChoice::kTrial + 1) * (kMany / ModeChoice::kSettled + 2);
  ModeChoice slower, faster;
  EXPECT_FALSE(slower.speculates());  // nothing is known
  EXPECT_LE(steps(slower, kMany, 1.0, 1.1), kTrials);
  EXPECT_GE(steps(slower, kMany, 1.0, 1.1), ModeChoice::kTrial);  // it looks again
  EXPECT_GE(steps(faster, kMany, 1.0, 0.9), kMany - kTrials);
}

// Caches are empty and pages new in the first steps of a run, which are of one kind.
TEST(ModeChoiceTest, SlowFirstStepsDoNotDecideAgainstTheirKind) {
  ModeChoice choice;
  steps(choice, ModeChoice::kTrial, 3.0, 3.0);
  EXPECT_LE(steps(choice, ModeChoice::kSettled, 1.0, 1.2), ModeChoice::kTrial);
}

TEST(ModeChoiceTest, ChangesWhenTheOtherKindHasBecomeFaster) {
  ModeChoice choice;
  steps(choice, 250, 1.0, 0.9);
  EXPECT_TRUE(choice.speculates());
  EXPECT_LE(steps(choice, 400, 1.0, 1.5), ModeChoice::kSettled + 8 * ModeChoice::kTrial);
}

TEST(ModeChoiceTest, WhereStepsAreClippedItWaitsForTheNormWhateverTheTimes) {
  ModeChoice choice;
  steps(choice, 200, 1.0, 0.5);
  EXPECT_TRUE(choice.speculates());
  EXPECT_LE(steps(choice, 200, 1.0, 0.5, false), 16);
  EXPECT_FALSE(choice.speculates());
  EXPECT_GE(steps(choice, 200, 1.0, 0.5), 200 - 16 - 4 * ModeChoice::kTrial);  // and back
}

}  // namespace
}  // namespace strata
