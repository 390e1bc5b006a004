#include <strata/text/permutation.h>

#include <algorithm>
#include <bit>
#include <utility>

#include <strata/runtime/assert.h>
#include <strata/runtime/rng.h>

namespace strata {
namespace {

constexpr std::uint32_t kRounds = 6;

std::uint64_t feistel(std::uint64_t value, int half_bits, std::uint64_t seed, std::uint64_t epoch) noexcept {
  const std::uint32_t mask = static_cast<std::uint32_t>((std::uint64_t{1} << half_bits) - 1);
  auto left = static_cast<std::uint32_t>(value >> half_bits);
  auto right = static_cast<std::uint32_t>(value) & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t mixed =
        philox({right, round, static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32)},
               {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)})[0];
    left ^= mixed & mask;
    std::swap(left, right);
  }
  return std::uint64_t{left} << half_bits | right;
}

}  // namespace

std::uint64_t permuted(std::uint64_t i, std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) noexcept {
  STRATA_ASSERT(i < n && n <= (std::uint64_t{1} << 62), "index ", i, " of a permutation of ", n);
  const int half_bits = std::max(1, static_cast<int>(std::bit_width(n - 1) + 1) / 2);
  std::uint64_t value = i;
  do {
    value = feistel(value, half_bits, seed, epoch);
  } while (value >= n);
  return value;
}

}  // namespace strata
