#include <strata/simd/convert.h>

#include <bit>
#include <vector>

#include <gtest/gtest.h>

#include "support/isas.h"

namespace strata::simd {
namespace {

template <class T>
class StorageTest : public ::testing::Test {};
using Storages = ::testing::Types<bf16, f16>;
TYPED_TEST_SUITE(StorageTest, Storages);

template <class T>
std::vector<std::uint32_t> bits_of(const std::vector<T>& values) {
  std::vector<std::uint32_t> out;
  for (const T x : values)
    if constexpr (std::is_same_v<T, float>)
      out.push_back(std::bit_cast<std::uint32_t>(x));
    else
      out.push_back(x.bits);
  return out;
}

// All 65536 bit patterns, with subnormals and both kinds of NaN; one more value makes the last step partial.
TYPED_TEST(StorageTest, EveryValueWidensToTheSameBitsOnEveryInstructionSet) {
  std::vector<TypeParam> all;
  std::vector<float> want;
  for (std::uint32_t bits = 0; bits <= 65536; ++bits) {
    all.push_back({static_cast<std::uint16_t>(bits)});
    want.push_back(to_f32(all.back()));
  }
  for (const CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    std::vector<float> got(all.size());
    widen(all.data(), got.data(), static_cast<std::int64_t>(all.size()));
    EXPECT_EQ(bits_of(got), bits_of(want)) << to_string(name);
  }
}

// For every stored value: itself, its f32 neighbours, the midpoint to the next value, and NaNs of all kinds.
TYPED_TEST(StorageTest, EveryValueRoundsToTheSameBitsOnEveryInstructionSet) {
  std::vector<float> all;
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    for (const std::uint32_t low : {0u, 1u, 0x0FFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      all.push_back(std::bit_cast<float>(bits << 16 | low));
  for (std::uint32_t shift = 0; shift < 32; ++shift)
    all.push_back(0x1p-24f * static_cast<float>(shift) / 4.0f);
  std::vector<TypeParam> want;
  for (const float x : all) want.push_back(from_f32<TypeParam>(x));
  for (const CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    std::vector<TypeParam> got(all.size());
    narrow(all.data(), got.data(), static_cast<std::int64_t>(all.size()));
    EXPECT_EQ(bits_of(got), bits_of(want)) << to_string(name);
  }
}

TYPED_TEST(StorageTest, NothingPastTheEndIsReadOrWritten) {
  for (const CpuIsa name : test::supported_isas()) {
    const test::IsaScope isa(name);
    for (std::int64_t n = 0; n < 40; ++n) {
      const std::vector<TypeParam> from(static_cast<std::size_t>(n), TypeParam{0x3C00});
      std::vector<float> wide(static_cast<std::size_t>(n) + 1, -1.0f);
      widen(from.data(), wide.data(), n);
      EXPECT_EQ(wide.back(), -1.0f);
      std::vector<TypeParam> back(static_cast<std::size_t>(n) + 1, TypeParam{0xABCD});
      narrow(wide.data(), back.data(), n);
      EXPECT_EQ(back.back().bits, 0xABCD);
      back.pop_back();
      EXPECT_EQ(bits_of(back), bits_of(from)) << to_string(name) << ", " << n;
    }
  }
}

}  // namespace
}  // namespace strata::simd
