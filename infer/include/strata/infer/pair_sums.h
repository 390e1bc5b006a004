#pragma once

#include <span>

#include <strata/infer/pair_figures.h>

namespace strata {

/// Adds up the statistics of pair losses (PairLossArgs::stats).
class PairSums {
 public:
  /// Adds the sums of a micro-batch, which are empty if a program has none.
  void add(std::span<const float> stats) noexcept {
    for (std::size_t i = 0; i < stats.size() && stats.size() == kStats; ++i)
      sums_[i] += static_cast<double>(stats[i]);
  }
  PairFigures figures() const noexcept {
    const double n = sums_[0];
    return n > 0 ? PairFigures{n, sums_[1] / n, sums_[2] / n, sums_[3] / n} : PairFigures{};
  }

 private:
  static constexpr std::size_t kStats = 4;
  double sums_[kStats] = {};
};

}  // namespace strata
