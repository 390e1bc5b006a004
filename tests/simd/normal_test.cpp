#include <strata/simd/normal.h>

#include <bit>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/rng.h>

#include "support/isas.h"

namespace strata::simd {
namespace {

std::vector<std::uint32_t> drawn(std::uint64_t seed, std::uint64_t stream, std::uint64_t first,
                                 std::size_t n) {
  std::vector<float> values(n);
  fill_normal(seed, stream, first, values);
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

std::vector<std::uint32_t> expected(std::uint64_t seed, std::uint64_t stream, std::uint64_t first,
                                    std::size_t n) {
  const Rng rng(seed, stream);
  std::vector<std::uint32_t> bits;
  for (std::size_t i = 0; i < n; ++i) bits.push_back(std::bit_cast<std::uint32_t>(rng.normal(first + i)));
  return bits;
}

// One value in 2^18 is computed by Rng itself, so that several of these are.
TEST(NormalTest, HasTheBitsOfTheGeneratorOnEveryInstructionSet) {
  constexpr std::size_t kN = (1 << 20) + 37;
  const auto want = expected(7, 12, 0, kN);
  for (const CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_TRUE(drawn(7, 12, 0, kN) == want) << to_string(name);
  }
}

TEST(NormalTest, EveryWordOfSeedStreamAndIndexCounts) {
  constexpr std::uint64_t kHigh = 0xFEDC'BA98'7654'3210u;
  for (const CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    EXPECT_EQ(drawn(kHigh, 3, 5, 300), expected(kHigh, 3, 5, 300)) << to_string(name);
    EXPECT_EQ(drawn(3, kHigh, 5, 300), expected(3, kHigh, 5, 300)) << to_string(name);
    EXPECT_EQ(drawn(3, 5, 0xFFFF'FF00u, 1000), expected(3, 5, 0xFFFF'FF00u, 1000)) << to_string(name);
  }
}

TEST(NormalTest, NothingPastTheEndIsWritten) {
  for (std::size_t n = 0; n < 40; ++n) {
    std::vector<float> values(n + 1, 99.0f);
    fill_normal(1, 2, 3, std::span(values).first(n));
    EXPECT_EQ(values.back(), 99.0f);
  }
}

}  // namespace
}  // namespace strata::simd
