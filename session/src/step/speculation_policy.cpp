#include <strata/session/speculation_policy.h>

#include <algorithm>
#include <bit>

namespace strata {

void SpeculationPolicy::record_guess(bool right) noexcept {
  wrong_ = wrong_ << 1 | static_cast<std::uint32_t>(!right);
  ++guessed_;
}

// A wrong guess costs about as much time as a right one saves: both write the undo log, a wrong guess also
// reads it, and a right one hides the update.
bool SpeculationPolicy::guesses_mostly_right() const noexcept {
  constexpr std::uint64_t kRemembered = 32;
  const std::uint64_t known = std::min(guessed_, kRemembered);
  return known > 0 && 2 * static_cast<std::uint64_t>(std::popcount(wrong_)) < known;
}

void SpeculationPolicy::record_step(bool speculated, double seconds) noexcept {
  in_a_row_ = speculated == last_ ? in_a_row_ + 1 : 1;
  last_ = speculated;
  double& known = seconds_[speculated ? 1 : 0];
  if (in_a_row_ == 2) known = seconds;
  if (in_a_row_ > 2) known += (seconds - known) / 4;
  if (speculated != using_ || --left_ > 0) return;
  trials_ = std::min(trials_ + 1, kFirstTrials);
  if (settled_ || trials_ < kFirstTrials) {
    using_ = !using_;
    left_ = kTrialSteps;
    settled_ = false;
  } else {
    using_ = seconds_[1] < seconds_[0];
    left_ = kSettledSteps;
    settled_ = true;
  }
}

}  // namespace strata
