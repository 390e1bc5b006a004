#pragma once

#include <string>
#include <vector>

namespace strata::detail {

/// Maps figures to positions between 0 and 1.
struct Scale {
  double low = 0, high = 1;
  bool log = false;
  double at(double value) const noexcept;
};
/// A scale on which [low, high] fits, and where its ticks are: round figures of the unit ("B": of KiB, MiB
/// and so on), at most about `wanted`.
Scale rounded(double low, double high, bool log, const std::string& unit, int wanted,
              std::vector<double>& ticks);

}  // namespace strata::detail
