#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::detail {

/// Scales rates, of which only the ratios matter, to integers from 1 to 2^16.
std::vector<std::uint64_t> stripe_weights(std::span<const double> rates);

/// Distributes `units` so that the maximum of counts[i] / weights[i], the time of the slowest path, is
/// minimal (the divisor method of Jefferson and D'Hondt; Balinski & Young 1982). No count falls when units
/// are added, so the difference of two apportionments has no negative count.
void apportion_units(std::uint64_t units, std::span<const std::uint64_t> weights,
                     std::span<std::uint64_t> counts);

}  // namespace strata::detail
