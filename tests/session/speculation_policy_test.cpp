#include <strata/session/speculation_policy.h>

#include <gtest/gtest.h>

namespace strata {
namespace {

/// Runs `n` steps, in which a step that waits for the norm takes `waiting_s` and one that speculates
/// `speculative_s`. Returns how many of them speculated.
int steps(SpeculationPolicy& choice, int n, double waiting_s, double speculative_s, bool right = true) {
  int speculated = 0;
  for (int i = 0; i < n; ++i) {
    const bool kind = choice.speculates();
    speculated += kind;
    choice.record_guess(right);
    choice.record_step(kind, kind ? speculative_s : waiting_s);
  }
  return speculated;
}

TEST(SpeculationPolicyTest, TimesBothKindsAndStaysWithTheFasterOne) {
  constexpr int kMany = 500, kTrials = (SpeculationPolicy::kTrialSteps + 1) *
                                       (kMany / SpeculationPolicy::kSettledSteps + 2);
  SpeculationPolicy slower, faster;
  EXPECT_FALSE(slower.speculates());  // nothing has been measured yet
  EXPECT_LE(steps(slower, kMany, 1.0, 1.1), kTrials);
  // It tries the slower kind again.
  EXPECT_GE(steps(slower, kMany, 1.0, 1.1), SpeculationPolicy::kTrialSteps);
  EXPECT_GE(steps(faster, kMany, 1.0, 0.9), kMany - kTrials);
}

// Cold caches and first-touch page faults slow down the first steps of a run, which are all of one kind.
TEST(SpeculationPolicyTest, SlowFirstStepsDoNotDecideAgainstTheirKind) {
  SpeculationPolicy choice;
  steps(choice, SpeculationPolicy::kTrialSteps, 3.0, 3.0);
  EXPECT_LE(steps(choice, SpeculationPolicy::kSettledSteps, 1.0, 1.2), SpeculationPolicy::kTrialSteps);
}

TEST(SpeculationPolicyTest, ChangesWhenTheOtherKindHasBecomeFaster) {
  SpeculationPolicy choice;
  steps(choice, 250, 1.0, 0.9);
  EXPECT_TRUE(choice.speculates());
  EXPECT_LE(steps(choice, 400, 1.0, 1.5),
            SpeculationPolicy::kSettledSteps + 8 * SpeculationPolicy::kTrialSteps);
}

TEST(SpeculationPolicyTest, ClippedStepsMakeItWaitForTheNormWhateverTheTimes) {
  SpeculationPolicy choice;
  steps(choice, 200, 1.0, 0.5);
  EXPECT_TRUE(choice.speculates());
  EXPECT_LE(steps(choice, 200, 1.0, 0.5, false), 16);
  EXPECT_FALSE(choice.speculates());
  // And then it speculates again.
  EXPECT_GE(steps(choice, 200, 1.0, 0.5), 200 - 16 - 4 * SpeculationPolicy::kTrialSteps);
}

}  // namespace
}  // namespace strata
