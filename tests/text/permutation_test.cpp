#include <strata/text/permutation.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace strata {
namespace {

std::vector<std::uint64_t> permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint64_t> out(n);
  for (std::uint64_t i = 0; i < n; ++i) out[i] = permuted(i, n, seed, epoch);
  return out;
}

class PermutationTest : public testing::TestWithParam<std::uint64_t> {};
TEST_P(PermutationTest, HitsEveryIndexOnce) {
  std::vector<std::uint64_t> places = permutation(GetParam(), 42, 3);
  std::sort(places.begin(), places.end());
  std::vector<std::uint64_t> all(GetParam());
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(places, all);
}
INSTANTIATE_TEST_SUITE_P(Sizes, PermutationTest,
                         testing::Values(1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097, 100003));

TEST(PermutationTest, SeedAndEpochChooseThePermutation) {
  EXPECT_EQ(permutation(1000, 1, 2), permutation(1000, 1, 2));
  EXPECT_NE(permutation(1000, 1, 2), permutation(1000, 1, 3));
  EXPECT_NE(permutation(1000, 1, 2), permutation(1000, 2, 2));
  EXPECT_NE(permutation(1000, 1, 2), permutation(1000, 1 + (1ull << 32), 2));
}

TEST(PermutationTest, NeighboursScatter) {
  constexpr std::uint64_t kPlaces = 10000;
  const std::vector<std::uint64_t> places = permutation(kPlaces, 5, 0);
  double step = 0;
  for (std::size_t i = 1; i < places.size(); ++i)
    step += std::abs(static_cast<double>(places[i]) - static_cast<double>(places[i - 1]));
  EXPECT_NEAR(step / (kPlaces - 1), kPlaces / 3.0, kPlaces / 30.0);  // two uniform positions: n / 3
}

TEST(PermutationTest, HugeSizesStayInside) {
  constexpr std::uint64_t kHuge = (1ull << 62) - 57;
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_LT(permuted(kHuge - 1 - i, kHuge, 9, i), kHuge);
}

}  // namespace
}  // namespace strata
