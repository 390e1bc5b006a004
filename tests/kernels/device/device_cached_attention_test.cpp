// Runs the device's attention over a KV cache on the host, one lane after the other, and expects the host
// op's bits.
#include <vector>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/kernels/attention.h>
#include <strata/kernels/cached_attention.h>
#include <strata/runtime/str.h>

#include "cuda/attention/cached_attention_math.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using detail::CachedView;
using dispatch::EmulatedHalfWarp;
using test::Tensor;
using test::Values;

/// Does what the kernels of cached_attention.cu do, one block after the other.
template <class T>
void run(const CachedView<T>& v, float scale) {
  const EmulatedHalfWarp lanes;
  const std::int64_t group = v.heads / v.kv_heads;
  std::vector<float> x(static_cast<std::size_t>(v.capacity));
  for (std::int64_t r = 0; r < v.rows; ++r)
    for (std::int64_t i = 0; i < v.kv_heads * v.d; ++i) detail::cached_store(v, r, i);
  for (std::int64_t r = 0; r < v.rows; ++r)
    for (std::int64_t head = 0; head < v.heads; ++head) {
      if (v.slots[r] < 0) continue;
      const std::int64_t all = v.positions[r] + 1, first_visible = v.first_visible(all),
                         n = all - first_visible;
      const std::int64_t cache = v.cache_of(v.slots[r], head / group) + first_visible * v.d;
      for (std::int64_t j = 0; j < n; ++j) {
        const float score =
            detail::cached_score(lanes, v.qkv + r * v.width() + head * v.d, v.keys + cache + j * v.d, v.d);
        x[static_cast<std::size_t>(j)] = v.score(score, scale, alibi_slope(head, v.heads), j, n);
      }
      detail::cached_softmax(lanes, x.data(), v.scales_scores() ? 1.0f : scale, n);
      for (std::int64_t i = 0; i < v.d; ++i)
        v.out[(r * v.heads + head) * v.d + i] =
            detail::cached_weighted_sum(x.data(), v.values + cache, i, v.d, n);
    }
}

class DeviceCachedAttentionTest : public ::testing::TestWithParam<CachedAttentionShape> {
 protected:
  template <class T>
  void expect_bits_of_the_host(DType dtype);
};

template <class T>
void DeviceCachedAttentionTest::expect_bits_of_the_host(DType dtype) {
  const CachedAttentionShape shape = GetParam();
  constexpr std::int64_t d = 19, capacity = 50;
  const std::int64_t width = (shape.heads + 2 * shape.kv_heads) * d;
  // The last position, a first position, two positions of one sequence that older keys precede, and a row
  // without a slot.
  std::vector<std::int32_t> positions = {49, 0, 17, 18, 0}, slots = {0, 1, 2, 2, -1};
  const auto rows = std::ssize(slots);
  Tensor qkv({rows, width}, Values(1).floats(rows * width, 2.0), dtype);
  const Shape cache = {3, shape.kv_heads, capacity, d};
  Tensor keys(cache, Values(2).floats(cache.n_elems()), dtype),
      values(cache, Values(3).floats(cache.n_elems()), dtype);
  Tensor got_keys = keys, got_values = values;
  Tensor want({rows, shape.heads * d}, std::vector<float>(static_cast<std::size_t>(rows * shape.heads * d)),
              dtype);
  Tensor got = want;
  test::Workspace workspace(cached_attention_workspace_bytes(rows, capacity, shape));
  cached_attention_host({qkv.view(), test::view(positions), test::view(slots), keys.view(), values.view(),
                         want.view(), shape, workspace.view()},
                        *test::pool());
  const CachedView<T> view = {qkv.view().as<T>(),
                              positions.data(),
                              slots.data(),
                              got_keys.view().as<T>(),
                              got_values.view().as<T>(),
                              got.view().as<T>(),
                              rows,
                              shape.heads,
                              shape.kv_heads,
                              capacity,
                              d,
                              shape.alibi,
                              shape.window,
                              shape.softcap};
  run(view, attention_scale({.scale = shape.scale}, d));
  EXPECT_EQ(test::differing_bits(got.values(), want.values()), 0u);
  EXPECT_EQ(test::differing_bits(got_keys.values(), keys.values()), 0u);
  EXPECT_EQ(test::differing_bits(got_values.values(), values.values()), 0u);
}

TEST_P(DeviceCachedAttentionTest, HasTheBitsOfTheHost) { expect_bits_of_the_host<float>(DType::f32); }
TEST_P(DeviceCachedAttentionTest, In16BitsItHasTheBitsOfTheHost) {
  expect_bits_of_the_host<bf16>(DType::bf16);
  expect_bits_of_the_host<f16>(DType::f16);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DeviceCachedAttentionTest,
    ::testing::Values(CachedAttentionShape{3, 3, false}, CachedAttentionShape{6, 2, false},
                      CachedAttentionShape{4, 1, true}, CachedAttentionShape{4, 2, false, 7},
                      CachedAttentionShape{4, 1, true, 18}, CachedAttentionShape{4, 2, false, 0, 1.5f, 0.5f},
                      CachedAttentionShape{6, 2, false, 20, 3.0f}),
    [](const auto& test) {
      return str("h", test.param.heads, "kv", test.param.kv_heads, test.param.alibi ? "alibi" : "", "window",
                 test.param.window, test.param.softcap > 0 ? "capped" : "");
    });

}  // namespace
}  // namespace strata::kernels
