#pragma once

#include <array>
#include <cstddef>

namespace strata {

/// A figure of a step, by the name that all outputs have for it.
struct NamedFigure {
  const char* name = "";
  double value = 0;
};

/// The figures of a model on pairs, in the mean.
struct PairFigures {
  double n = 0;         ///< pairs; 0: there are no such figures
  double accuracy = 0;  ///< the share of pairs whose chosen answer has the higher score
  double chosen = 0;    ///< score of the chosen answers; beside the reference and times beta if there is one
  double rejected = 0;
};

inline constexpr std::size_t kPairFigures = 4;
/// "accuracy", "margin" (of the scores), "chosen" and "rejected".
std::array<NamedFigure, kPairFigures> named_figures(const PairFigures& pairs) noexcept;

}  // namespace strata
