#include <atomic>
#include <bit>
#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <strata/cpuopt/master.h>
#include <strata/simd/math/master.h>
#include <strata/runtime/threads/thread_pool.h>

#include "support/isas.h"
#include "support/numeric.h"

namespace strata::cpuopt {

using namespace simd;
namespace {

using test::differing_bits;
using test::IsaScope;
using test::Values;

std::vector<float> edge_values() {
  std::vector<float> values = Values(3).floats(131);
  for (const std::uint32_t bits :
       {0x00000000u, 0x80000000u, 0x00000001u, 0x007FFFFFu, 0x3F808000u, 0x3F807FFFu, 0xBF808000u,
        0x7F7FFFFFu, 0xFF7FFFFFu, 0x7F800000u, 0xFF800000u, 0x3F80FFFFu, 0x00008000u})
    values.push_back(std::bit_cast<float>(bits));
  return values;
}

struct Halves {
  explicit Halves(std::size_t n) : param(n * 4), master(n * 4) {}
  std::vector<std::byte> param, master;  // large enough for every layout
};

class MasterLayoutTest : public ::testing::TestWithParam<MasterLayout> {};

TEST_P(MasterLayoutTest, AMasterRoundTripsWithTheSameBitsOnEveryInstructionSet) {
  const std::vector<float> values = edge_values();
  Halves scalar(values.size());
  for (const CpuIsa name : test::supported_isas()) {
    const IsaScope isa(name);
    Halves halves(values.size());
    split_masters(values, GetParam(), halves.param.data(), halves.master.data());
    std::vector<float> back(values.size());
    join_masters(GetParam(), halves.param.data(), halves.master.data(), back);
    EXPECT_EQ(differing_bits(back, values), 0u) << to_string(name);
    if (name == CpuIsa::scalar) scalar = halves;
    EXPECT_EQ(halves.param, scalar.param) << to_string(name);
    EXPECT_EQ(halves.master, scalar.master) << to_string(name);
  }
}

TEST(SplitMasterTest, TheUpperHalfIsRoundedHalfAwayFromZeroAndANanBecomesQuiet) {
  const auto split = [](std::uint32_t bits) { return split_master(std::bit_cast<float>(bits)); };
  EXPECT_EQ(split(0x3F808000u).high.bits, 0x3F81u);  // nearest even would be 3F80
  EXPECT_EQ(split(0x3F807FFFu).high.bits, 0x3F80u);
  EXPECT_EQ(split(0xBF808000u).high.bits, 0xBF81u);
  EXPECT_EQ(split(0x7F7FFFFFu).high.bits, 0x7F80u);  // the parameter is infinite, but the master is exact
  for (const std::uint32_t nan : {0x7FFFFFFFu, 0xFFFFFFFFu, 0x7F800001u}) {
    EXPECT_EQ(split(nan).high.bits, 0x7FC0u);
    EXPECT_EQ(split(nan).low, 0u);
  }
}

// Patterns in the bf16_split layout: all lower halves of one in 61 upper halves, which differ from run to
// run, or of all with PATTERNS_ALL (bench/claims/optimizer_bits).
TEST(SplitMasterTest, PatternsRoundTripExceptThatANanBecomesQuiet) {
  const auto pool = must(ThreadPool::create(0));
  constexpr std::uint64_t kPart = 1 << 16;
  const std::uint64_t stride = std::getenv("PATTERNS_ALL") == nullptr ? 61 : 1;
  const std::uint64_t first = std::random_device{}() % stride;
  SCOPED_TRACE(::testing::Message() << "first upper half " << first);
  std::atomic<std::uint64_t> wrong = 0;
  pool->parallel_for((std::uint64_t{1} << 32) / kPart / stride, [&, stride, first](std::int64_t i) {
    std::vector<float> x(kPart), back(kPart);
    std::vector<bf16> high(kPart);
    std::vector<std::uint16_t> low(kPart);
    for (std::uint64_t j = 0; j < kPart; ++j)
      x[j] = std::bit_cast<float>(
          static_cast<std::uint32_t>((static_cast<std::uint64_t>(i) * stride + first) * kPart + j));
    split_masters(x, MasterLayout::bf16_split, high.data(), low.data());
    join_masters(MasterLayout::bf16_split, high.data(), low.data(), back);
    std::uint64_t differing = 0;
    for (std::uint64_t j = 0; j < kPart; ++j) {
      const auto want = x[j] == x[j] ? std::bit_cast<std::uint32_t>(x[j]) : 0x7FC00000u;
      differing += std::bit_cast<std::uint32_t>(back[j]) != want;
    }
    wrong += differing;
  });
  EXPECT_EQ(wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MasterLayoutTest,
                         ::testing::Values(MasterLayout::f32, MasterLayout::bf16_split,
                                           MasterLayout::bf16_shadow, MasterLayout::f16_shadow));

}  // namespace
}  // namespace strata::cpuopt
