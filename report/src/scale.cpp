#include "scale.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include <strata/report/chart.h>

namespace strata {
namespace detail {

double Scale::at(double value) const noexcept {
  if (log) return (std::log10(std::max(value, low)) - std::log10(low)) / (std::log10(high) - std::log10(low));
  return (value - low) / (high - low);
}

Scale rounded(double low, double high, bool log, const std::string& unit, int wanted,
              std::vector<double>& ticks) {
  ticks.clear();
  if (low == 0 && high == 0) high = 1;
  if (!(high > low)) {
    const double around = std::max(std::abs(low), 1e-12) * 0.5;
    low -= around;
    high += around;
  }
  if (log && low > 0) {
    const double first = std::floor(std::log10(low)), last = std::ceil(std::log10(high));
    const double every = std::max(1.0, std::ceil((last - first) / wanted));
    for (double power = first; power <= last; power += every) ticks.push_back(std::pow(10, power));
    return {std::pow(10, first), std::pow(10, last), true};
  }
  const double rough = (high - low) / wanted, power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double nice : {1.0, 2.0, 2.5, 5.0})
    if (power * nice >= rough) {
      step = power * nice;
      break;
    }
  if (unit == "B") step = std::exp2(std::ceil(std::log2(rough)));
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return {first * step, last * step, false};
}

}  // namespace detail
}  // namespace strata
