#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::detail {

/// Rates, of which only the ratios count, as whole numbers from 1 to 2^16.
std::vector<std::uint64_t> stripe_weights(std::span<const double> rates);

/// Deals `units` out so that the largest counts[i] / weights[i], the time the slowest takes, is least (the
/// divisor method of Jefferson and D'Hondt; Balinski & Young 1982). No count falls when there are more units,
/// so that differences of two deals are deals as well.
void apportion_units(std::uint64_t units, std::span<const std::uint64_t> weights,
                     std::span<std::uint64_t> counts);

}  // namespace strata::detail
