#pragma once

#include <array>
#include <cstdint>

namespace strata {

/// Whether the next step of mode `auto` speculates: while fewer than half of the last 32 steps were clipped,
/// and where such steps are faster. Both kinds are timed, the slower one again now and then. Made of counts
/// and times alone.
class SpeculationPolicy {
 public:
  static constexpr int kTrialSteps =
      3;  ///< steps, of which the first has the update of one of the other kind
  static constexpr int kFirstTrials =
      3;  ///< trials before it settles first: the steps of a run's first one are slow
  static constexpr int kSettledSteps = 96;  ///< steps until the slower kind is timed again

  bool speculates() const noexcept { return using_ && guesses_mostly_right(); }
  /// A step's guess that nothing would be clipped, made or not, was right or wrong.
  void record_guess(bool right) noexcept;
  /// A step has been taken, and speculated or not.
  void record_step(bool speculated, double seconds) noexcept;

 private:
  bool guesses_mostly_right() const noexcept;

  std::array<double, 2>
      seconds_{};  // of a step that waits for the norm, and of one that speculates; 0: not timed
  bool using_ = false;
  bool settled_ = false;    // on the faster kind
  int trials_ = 0;          // up to kFirstTrials
  int left_ = kTrialSteps;  // steps of this trial or time
  bool last_ = false;
  int in_a_row_ = 0;         // steps of the last kind
  std::uint32_t wrong_ = 0;  // a bit a step, the last one lowest
  std::uint64_t guessed_ = 0;
};

}  // namespace strata
