#pragma once

#include <array>
#include <cstdint>

namespace strata {

/// Decides whether the next step of mode `auto` speculates: while fewer than half of the last 32 steps were
/// clipped, and if such steps are faster. Both kinds of steps are timed, the slower one again from time to
/// time. Depends on counts and times only.
class SpeculationPolicy {
 public:
  /// Steps per trial. The first one still includes the update of a step of the other kind.
  static constexpr int kTrialSteps = 3;
  /// Trials before the policy first settles. The steps of a run's first trial are slow.
  static constexpr int kFirstTrials = 3;
  static constexpr int kSettledSteps = 96;  ///< steps until the slower kind is timed again

  bool speculates() const noexcept { return using_ && guesses_mostly_right(); }
  /// Records whether the guess that nothing is clipped, made or not, was right for a step.
  void record_guess(bool right) noexcept;
  /// Records a completed step, and whether it speculated.
  void record_step(bool speculated, double seconds) noexcept;

 private:
  bool guesses_mostly_right() const noexcept;

  // Duration of a step that waits for the norm, and of one that speculates; 0: not timed.
  std::array<double, 2> seconds_{};
  bool using_ = false;
  bool settled_ = false;    // on the faster kind
  int trials_ = 0;          // number of trials so far, up to kFirstTrials
  int left_ = kTrialSteps;  // steps left of this trial or settled period
  bool last_ = false;
  int in_a_row_ = 0;         // steps in a row of the kind of the last one
  std::uint32_t wrong_ = 0;  // one bit per step, the last one lowest
  std::uint64_t guessed_ = 0;
};

}  // namespace strata
