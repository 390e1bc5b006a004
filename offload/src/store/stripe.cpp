#include "store/stripe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace strata::detail {

std::vector<std::uint64_t> stripe_weights(std::span<const double> rates) {
  const double max_rate =
      std::max(*std::max_element(rates.begin(), rates.end()), std::numeric_limits<double>::min());
  std::vector<std::uint64_t> weights;
  for (const double rate : rates)
    weights.push_back(static_cast<std::uint64_t>(std::max(1.0, std::round(rate / max_rate * 65536))));
  return weights;
}

// This method gives each path at least the integer part of its quota, so only the few remaining units are
// assigned one by one.
void apportion_units(std::uint64_t units, std::span<const std::uint64_t> weights,
                     std::span<std::uint64_t> counts) {
  const std::uint64_t all = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::uint64_t dealt = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) dealt += counts[i] = units * weights[i] / all;
  for (; dealt < units; ++dealt) {
    std::size_t next = 0;
    for (std::size_t i = 1; i < weights.size(); ++i)
      if ((counts[i] + 1) * weights[next] < (counts[next] + 1) * weights[i]) next = i;
    ++counts[next];
  }
}

}  // namespace strata::detail
