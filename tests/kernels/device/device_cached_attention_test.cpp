// Runs the device's attention over a KV cache on the host, one block after the other, and expects the host
// op's bits.
#include <memory>
#include <vector>

#include <strata/kernels/attention.h>
#include <strata/kernels/cached_attention.h>
#include <strata/runtime/str.h>

#include "attention/cached_attention_sizes.h"
#include "cuda/cached_attention/cached_attention_blocks.h"
#include "cuda/emulation/warps.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using detail::CachedView;
using test::Tensor;
using test::Values;

template <int kWarps, bool kReversed>
struct EmulatedCachedBlock : detail::EmulatedWarps<kWarps, kReversed> {
  static detail::KeySums& own(std::vector<detail::KeySums>& sums, int thread) {
    return sums[static_cast<std::size_t>(thread)];
  }
};

/// Does what the kernels of cached_attention.cu do, one block after the other.
template <bool kPacked, bool kReversed, class T>
void run(const CachedView<T>& v, float scale, float* x) {
  const auto stage = std::make_unique<detail::ScoreStage<T>>();
  const auto softmax = std::make_unique<detail::SoftmaxStage>();
  const auto sum = std::make_unique<detail::SumStage<T>>();
  std::vector<detail::KeySums> sums(detail::kScoreKeys);
  const detail::CachedGrids grids = detail::cached_grids(v);
  const std::int64_t at_once = detail::cached_attention_rows_at_once(v.rows, v.heads);
  const auto slopes = [&](std::int64_t head) { return v.alibi ? alibi_slope(head, v.heads) : 0.0f; };
  for (std::int64_t r = 0; r < v.rows; ++r)
    for (int i = 0; i < v.kv_heads * v.d; ++i) detail::cached_store(v, r, i);
  for (std::int64_t r = 0; r < v.rows; ++r) {
    const std::int64_t of_workspace = r % at_once, n = detail::visible_keys(v, r, 0).n;
    for (std::int64_t kv = 0; kv < v.kv_heads; ++kv)
      for (int block = 0; block < grids.key_blocks * grids.score_heads; ++block)
        detail::cached_scores<kPacked>(EmulatedCachedBlock<detail::kScoreWarps, kReversed>(), v, scale,
                                       slopes, r, of_workspace, kv,
                                       block % static_cast<int>(grids.score_heads) * detail::kScoreHeads,
                                       block / grids.score_heads * detail::kScoreKeys, x, *stage, sums);
    for (std::int64_t head = 0; head < v.heads && n > 0; ++head)
      detail::cached_softmax_block(EmulatedCachedBlock<detail::kSoftmaxWarps, kReversed>(), v, head,
                                   x + (of_workspace * v.heads + head) * v.capacity,
                                   v.scales_scores() ? 1.0f : scale, n, *softmax);
    for (std::int64_t kv = 0; kv < v.kv_heads; ++kv)
      for (int block = 0; block < grids.elem_blocks * grids.sum_heads; ++block)
        detail::cached_weighted_sums<kPacked>(
            EmulatedCachedBlock<detail::kSumWarps, kReversed>(), v, r, of_workspace, kv,
            block % static_cast<int>(grids.sum_heads) * detail::kSumHeads,
            block / static_cast<int>(grids.sum_heads) * detail::SumStage<T>::kPack, x, *sum);
  }
}

class DeviceCachedAttentionTest : public ::testing::TestWithParam<CachedAttentionShape> {
 protected:
  /// Heads of `d` elements; the longest sequence has `capacity` tokens.
  template <class T, bool kPacked>
  void expect_bits_of_the_host(DType dtype, std::int64_t d, std::int64_t capacity);
};

template <class T, bool kPacked>
void DeviceCachedAttentionTest::expect_bits_of_the_host(DType dtype, std::int64_t d, std::int64_t capacity) {
  const CachedAttentionShape shape = GetParam();
  const std::int64_t width = (shape.heads + 2 * shape.kv_heads) * d;
  // The last position, a first position, two positions of one sequence that older keys precede, and a row
  // without a slot.
  std::vector<std::int32_t> positions = {static_cast<std::int32_t>(capacity - 1), 0, 17, 18, 0},
                            slots = {0, 1, 2, 2, -1};
  const auto rows = std::ssize(slots);
  Tensor qkv({rows, width}, Values(1).floats(rows * width, 2.0), dtype);
  const Shape cache = {3, shape.kv_heads, capacity, d};
  Tensor keys(cache, Values(2).floats(cache.n_elems()), dtype),
      values(cache, Values(3).floats(cache.n_elems()), dtype);
  Tensor got_keys = keys, got_values = values;
  Tensor want({rows, shape.heads * d}, std::vector<float>(static_cast<std::size_t>(rows * shape.heads * d)),
              dtype);
  Tensor got = want;
  // Shapes with an even number of heads also have sinks.
  Tensor sinks({shape.heads}, Values(4).floats(shape.heads, 3.0), dtype);
  const bool has_sinks = shape.heads % 2 == 0;
  test::Workspace workspace(cached_attention_workspace_bytes(rows, capacity, d, shape));
  cached_attention_host({qkv.view(), test::view(positions), test::view(slots), keys.view(), values.view(),
                         want.view(), shape, workspace.view(), has_sinks ? sinks.view() : TensorView{}},
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
                              shape.softcap,
                              has_sinks ? sinks.view().as<T>() : nullptr};
  const float scale = attention_scale({.scale = shape.scale}, d);
  run<kPacked, false>(view, scale, reinterpret_cast<float*>(workspace.view().data));
  EXPECT_EQ(test::differing_bits(got.values(), want.values()), 0u);
  run<kPacked, true>(view, scale, reinterpret_cast<float*>(workspace.view().data));
  EXPECT_EQ(test::differing_bits(got.values(), want.values()), 0u) << "the last thread first";
  EXPECT_EQ(test::differing_bits(got_keys.values(), keys.values()), 0u);
  EXPECT_EQ(test::differing_bits(got_values.values(), values.values()), 0u);
}

TEST_P(DeviceCachedAttentionTest, HasTheBitsOfTheHost) {
  expect_bits_of_the_host<float, false>(DType::f32, 19, 50);
  expect_bits_of_the_host<float, true>(DType::f32, 20, 52);
}
TEST_P(DeviceCachedAttentionTest, In16BitsItHasTheBitsOfTheHost) {
  expect_bits_of_the_host<bf16, false>(DType::bf16, 19, 50);
  expect_bits_of_the_host<f16, false>(DType::f16, 19, 50);
  expect_bits_of_the_host<bf16, true>(DType::bf16, 24, 52);
}
// More keys than a block scores, sums or normalizes at once, and heads longer than it stages at once.
TEST_P(DeviceCachedAttentionTest, OfLongSequencesItHasTheBitsOfTheHost) {
  expect_bits_of_the_host<bf16, true>(DType::bf16, 96, 2300);
  expect_bits_of_the_host<float, true>(DType::f32, 136, 300);
  expect_bits_of_the_host<bf16, true>(DType::bf16, 512, 50);
}

// One token of a model with eight key heads occupies all multiprocessors of an H100.
TEST(CachedAttentionGridsTest, OneTokenOccupiesAGpu) {
  const CachedView<bf16> v = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                              1,       32,      8,       4096,    128,     false};
  const detail::CachedGrids grids = detail::cached_grids(v);
  EXPECT_EQ(grids.key_blocks * grids.score_heads * v.kv_heads, 256);
  EXPECT_EQ(grids.elem_blocks * grids.sum_heads * v.kv_heads, 128);
  EXPECT_EQ(detail::cached_attention_rows_at_once(512, 32), 8);
  EXPECT_EQ(detail::cached_attention_rows_at_once(3, 32), 3);
  EXPECT_EQ(detail::cached_attention_rows_at_once(3, 1000), 1);
  EXPECT_EQ(cached_attention_workspace_bytes(512, 9999, 64, {.heads = 32, .kv_heads = 8}), 256u * 9999 * 4);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DeviceCachedAttentionTest,
    ::testing::Values(CachedAttentionShape{3, 3, false}, CachedAttentionShape{6, 2, false},
                      CachedAttentionShape{4, 1, true}, CachedAttentionShape{4, 2, false, 7},
                      CachedAttentionShape{4, 1, true, 18}, CachedAttentionShape{4, 2, false, 0, 1.5f, 0.5f},
                      CachedAttentionShape{6, 2, false, 20, 3.0f}, CachedAttentionShape{22, 2, false}),
    [](const auto& test) {
      return str("h", test.param.heads, "kv", test.param.kv_heads, test.param.alibi ? "alibi" : "", "window",
                 test.param.window, test.param.softcap > 0 ? "capped" : "");
    });

}  // namespace
}  // namespace strata::kernels
