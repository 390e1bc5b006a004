#pragma once

#include <cstdint>

namespace strata {

/// Element `i` of a permutation of [0, n) chosen by (seed, epoch); i < n <= 2^62. Stateless: a balanced
/// Feistel network (Luby and Rackoff 1988) over the smallest even number of bits that holds n, with Philox as
/// its round function, repeated until the result is below n (Black and Rogaway 2002, cycle walking). At most
/// 4 repetitions on average.
std::uint64_t permuted(std::uint64_t i, std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) noexcept;

}  // namespace strata
