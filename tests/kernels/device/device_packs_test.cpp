// Runs the elementwise kernels of a GPU thread by thread on the host: packs of 16 bytes have the bits of
// single elements, and nothing behind the end is written.
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include <strata/runtime/str.h>

#include "cuda/elementwise/packs.h"
#include "support/numeric.h"

namespace strata::kernels {
namespace {

using detail::Pack;

template <class T>
std::vector<T> values(std::int64_t n, std::uint64_t seed) {
  std::vector<T> out;
  for (const float x : test::Values(seed).floats(n, 4.0)) out.push_back(from_f32<T>(x));
  return out;
}
template <class T>
std::vector<float> bits(const std::vector<T>& of) {
  std::vector<float> all;
  for (const T x : of) all.push_back(to_f32(x));
  return all;
}

template <class T>
class DevicePacksTest : public ::testing::Test {};
using Stored = ::testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(DevicePacksTest, Stored);

TYPED_TEST(DevicePacksTest, MappedElementsAreWrittenAndNoneBehindTheEnd) {
  using T = TypeParam;
  const auto f = [](T a, T b) { return detail::stored_add(a, detail::stored_gelu(b)); };
  for (const std::int64_t n : {1, 7, 8, 9, 16, 31, 64, 65}) {
    const std::vector<T> a = values<T>(n, 1), b = values<T>(n, 2);
    std::vector<T> want, got(static_cast<std::size_t>(n) + 16, from_f32<T>(77.0f));
    for (std::int64_t i = 0; i < n; ++i)
      want.push_back(f(a[static_cast<std::size_t>(i)], b[static_cast<std::size_t>(i)]));
    want.resize(got.size(), from_f32<T>(77.0f));
    for (std::int64_t thread = 0; thread < n / Pack<T>::kSize + 3; ++thread)
      detail::map_pack(thread, n, f, got.data(), a.data(), b.data());
    EXPECT_EQ(bits(got), bits(want)) << n;
  }
}

TYPED_TEST(DevicePacksTest, GatedActivationsAndTheirGradients) {
  using T = TypeParam;
  constexpr int kSize = Pack<T>::kSize, f = 5 * kSize;
  const std::vector<T> gate_up = values<T>(2 * f, 3), dy = values<T>(f, 4);
  for (const bool gelu : {false, true}) {
    std::vector<T> one(f), packed(f), done(2 * f), dpacked(2 * f);
    for (int first = 0; first < f; ++first) {
      detail::gate_part<1>(gate_up.data(), one.data(), gelu, f, first);
      detail::gate_part_backward<1>(gate_up.data(), dy.data(), done.data(), gelu, f, first);
    }
    for (int first = 0; first < f; first += kSize) {
      detail::gate_part<kSize>(gate_up.data(), packed.data(), gelu, f, first);
      detail::gate_part_backward<kSize>(gate_up.data(), dy.data(), dpacked.data(), gelu, f, first);
    }
    EXPECT_EQ(bits(packed), bits(one));
    EXPECT_EQ(bits(dpacked), bits(done));
    EXPECT_EQ(to_f32(one[3]), to_f32(gelu ? detail::stored_geglu(gate_up[3], gate_up[3 + f])
                                          : detail::stored_swiglu(gate_up[3], gate_up[3 + f])));
  }
}

// Heads that are rotated whole or in part, the values behind them, in place and not.
TYPED_TEST(DevicePacksTest, RotatedRows) {
  using T = TypeParam;
  constexpr int kSize = Pack<T>::kSize;
  for (const bool interleaved : {false, true})
    for (const bool copies : {false, true})
      for (const int passed : {0, 2 * kSize}) {
        const int pairs = 2 * kSize, head_dim = 2 * pairs + passed, width = 5 * head_dim;
        const detail::Rotation r = {width, 3, head_dim, pairs, interleaved, true, copies};
        ASSERT_TRUE(r.divides<kSize>());
        const std::vector<T> x = values<T>(width, 5);
        const std::vector<float> table = test::Values(6).floats(2 * pairs);
        const auto rotated = [&](auto n, int threads) {
          std::vector<T> y = copies ? std::vector<T>(x.size(), from_f32<T>(77.0f)) : x;
          for (int thread = 0; thread < threads; ++thread)
            detail::rotate_part<decltype(n)::value>(copies ? x.data() : y.data(), table.data(), y.data(), r,
                                                    thread);
          return bits(y);
        };
        const std::vector<float> one = rotated(std::integral_constant<int, 1>{}, r.row_threads<1>());
        EXPECT_EQ(rotated(std::integral_constant<int, kSize>{}, r.row_threads<kSize>()), one)
            << interleaved << copies << passed;
        // The last head of the row is none of the rotated ones; the second element of the first pair is one.
        EXPECT_EQ(one.back(), to_f32(x.back()));
        const auto pair = detail::rotate(x[0], x[static_cast<std::size_t>(interleaved ? 1 : pairs)], table[0],
                                         -table[static_cast<std::size_t>(pairs)]);
        EXPECT_EQ(one[0], to_f32(pair.first));
        EXPECT_EQ(one[static_cast<std::size_t>(interleaved ? 1 : pairs)], to_f32(pair.second));
      }
  EXPECT_FALSE((detail::Rotation{36, 1, 36, 18, false, false, false}.divides<kSize>()));
}

}  // namespace
}  // namespace strata::kernels
