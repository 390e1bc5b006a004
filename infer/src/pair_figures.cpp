#include <strata/infer/pair_figures.h>

namespace strata {

std::array<NamedFigure, kPairFigures> named_figures(const PairFigures& pairs) noexcept {
  return {{{"accuracy", pairs.accuracy},
           {"margin", pairs.chosen - pairs.rejected},
           {"chosen", pairs.chosen},
           {"rejected", pairs.rejected}}};
}

}  // namespace strata
