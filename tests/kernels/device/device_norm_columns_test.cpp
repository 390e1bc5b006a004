// Runs the sums over rows of a GPU's norms on the host, thread by thread, and expects the bits of the host's
// ops.
#include <vector>

#include <gtest/gtest.h>

#include <strata/kernels/layernorm.h>
#include <strata/kernels/linear.h>
#include <strata/kernels/rmsnorm.h>

#include "cuda/emulation/warps.h"
#include "cuda/norm/head_columns.h"
#include "cuda/norm/norm_columns.h"
#include "kernels/device/device_tensors.h"
#include "support/op_test.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

template <bool kReversed>
struct EmulatedHeadColumns : detail::EmulatedWarps<detail::kHeadWarps, kReversed> {
  static float& own(std::vector<float>& sums, int thread) { return sums[static_cast<std::size_t>(thread)]; }
};

template <class T>
class DeviceNormColumnsTest : public test::DeviceTensors<T> {};
using StoredColumns = ::testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(DeviceNormColumnsTest, StoredColumns);

// A thread has a pack of columns, or one.
TYPED_TEST(DeviceNormColumnsTest, SumsOverRows) {
  constexpr std::int64_t rows = 70;
  ASSERT_EQ(detail::row_blocks(rows).rows, 64);
  for (const std::int64_t h : {7, 48}) {
    Tensor x = this->in({rows, h}, 1, 2.0), w = this->in({h}, 2), dy = this->in({rows, h}, 3),
           mean = this->stat(rows), rstd = mean, dx = this->out({rows, h}), y = dx;
    Tensor want_dw = this->stat(h), want_db = want_dw, want_rms = want_dw, want_bias = want_dw;
    layernorm_forward_host({x.view(), w.view(), w.view(), y.view(), mean.view(), rstd.view()}, *this->pool_);
    test::Workspace workspace(layernorm_backward_workspace_bytes(rows, h));
    layernorm_backward_host({x.view(), w.view(), mean.view(), rstd.view(), dy.view(), dx.view(),
                             want_dw.view(), want_db.view(), false, false, workspace.view()},
                            *this->pool_);
    rmsnorm_backward_host(
        {x.view(), w.view(), rstd.view(), dy.view(), dx.view(), want_rms.view(), false, workspace.view()},
        *this->pool_);
    linear_backward_bias_host({dy.view(), want_bias.view(), false, workspace.view()}, *this->pool_);
    const auto check = [&](auto n) {
      std::vector<float> sums[4][2];
      for (auto& kind : sums)
        for (auto& block : kind) block.resize(static_cast<std::size_t>(h));
      for (std::int64_t block = 0; block < 2; ++block)
        for (std::int64_t column = 0; column < h; column += n()) {
          const std::int64_t first = block * 64, end = block == 0 ? 64 : rows;
          detail::layernorm_columns<n()>(this->data(x), this->floats(mean), this->floats(rstd),
                                         this->data(dy), column, first, end, h,
                                         sums[0][block].data() + column, sums[1][block].data() + column);
          detail::rmsnorm_columns<n()>(this->data(x), this->floats(rstd), this->data(dy),
                                       detail::HeadGroup{0, 0, 1, h, h, 1}, column, first, end,
                                       sums[2][block].data() + column);
          detail::bias_columns<n()>(this->data(dy), column, h, first, end, sums[3][block].data() + column);
        }
      const Tensor* const want[] = {&want_dw, &want_db, &want_rms, &want_bias};
      for (std::size_t kind = 0; kind < 4; ++kind) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(h); ++i)
          sums[kind][0][i] = sums[kind][0][i] + sums[kind][1][i];
        EXPECT_EQ(test::differing_bits(sums[kind][0], want[kind]->values()), 0u) << kind << ", " << n();
      }
    };
    check(std::integral_constant<int, 1>{});
    if (h % dispatch::Pack<TypeParam>::kSize == 0)
      check(std::integral_constant<int, dispatch::Pack<TypeParam>::kSize>{});
  }
}

TYPED_TEST(DeviceNormColumnsTest, SumsOverRowsAndHeads) {
  using T = TypeParam;
  constexpr std::int64_t rows = 9, heads = 4, kv_heads = 2, d = 24, normed = heads + kv_heads,
                         width = (normed + kv_heads) * d;
  Tensor x = this->in({rows, width}, 1, 2.0), w = this->in({d}, 2), dy = this->in({rows, width}, 4),
         y = this->out({rows, width}), rstd = this->stat(rows * normed), dq = this->stat(d), dk = dq;
  qk_norm_forward_host({x.view(), w.view(), w.view(), y.view(), rstd.view(), heads, kv_heads}, *this->pool_);
  test::Workspace workspace(qk_norm_backward_workspace_bytes(rows, d, d));
  qk_norm_backward_host({x.view(), w.view(), w.view(), rstd.view(), dy.view(), y.view(), dq.view(), dk.view(),
                         heads, kv_heads, false, false, workspace.view()},
                        *this->pool_);
  const auto sums = [&](const detail::HeadGroup& group) {
    std::vector<float> out(d);
    for (std::int64_t column = 0; column < d; ++column)
      detail::rmsnorm_columns<1, T>(this->data(x), this->floats(rstd), this->data(dy), group, column, 0, rows,
                                    out.data() + column);
    return out;
  };
  EXPECT_EQ(test::differing_bits(sums({0, 0, heads, d, width, normed}), dq.values()), 0u);
  EXPECT_EQ(test::differing_bits(sums({heads, heads * d, kv_heads, d, width, normed}), dk.values()), 0u);
}

// More heads than are staged at once, and more columns than a block has threads.
TYPED_TEST(DeviceNormColumnsTest, StagedHeads) {
  using T = TypeParam;
  constexpr std::int64_t heads = 5, kv_heads = 3, normed = heads + kv_heads;
  for (const std::int64_t rows : {1, 3, 41})
    for (const std::int64_t d : {24, 136}) {
      const std::int64_t width = (normed + kv_heads) * d;
      Tensor x = this->in({rows, width}, 1, 2.0), dy = this->in({rows, width}, 4);
      std::vector<float> rstd = Values(5).floats(rows * normed);
      const auto stage = std::make_unique<detail::HeadStage<T>>();
      std::vector<float> own(detail::kHeadColumns);
      for (const detail::HeadGroup& group :
           {detail::HeadGroup{0, 0, heads, d, width, normed},
            detail::HeadGroup{heads, heads * d, kv_heads, d, width, normed}}) {
        ASSERT_TRUE(detail::stages_heads<T>(group, rows));
        std::vector<float> want(static_cast<std::size_t>(d)), got = want, reversed = want;
        for (std::int64_t column = 0; column < d; ++column)
          detail::rmsnorm_columns<1, T>(this->data(x), rstd.data(), this->data(dy), group, column, 0, rows,
                                        want.data() + column);
        for (int column = 0; column < d; column += detail::kHeadColumns) {
          detail::rmsnorm_head_columns(EmulatedHeadColumns<false>(), this->data(x), rstd.data(),
                                       this->data(dy), group, column, 0, rows, got.data(), *stage, own);
          detail::rmsnorm_head_columns(EmulatedHeadColumns<true>(), this->data(x), rstd.data(),
                                       this->data(dy), group, column, 0, rows, reversed.data(), *stage, own);
        }
        EXPECT_EQ(test::differing_bits(got, want), 0u) << rows << ", " << d;
        EXPECT_EQ(test::differing_bits(reversed, want), 0u) << rows << ", " << d;
      }
    }
}

TEST(DeviceNormPacksTest, PacksOfColumnsAreAlignedInEveryRow) {
  EXPECT_EQ(detail::columns_of_thread<bf16>(48, 48), 8);
  EXPECT_EQ(detail::columns_of_thread<float>(20, 20), 4);
  EXPECT_EQ(detail::columns_of_thread<bf16>(20, 20), 1);
  EXPECT_EQ(detail::columns_of_thread<bf16>(detail::HeadGroup{1, 20, 1, 24, 68, 2}), 1);
  EXPECT_EQ(detail::columns_of_thread<bf16>(detail::HeadGroup{1, 24, 1, 24, 72, 2}), 8);
  EXPECT_EQ(detail::columns_of_thread<bf16>(detail::HeadGroup{0, 0, 4, 24, 144, 6}), 1);
}

}  // namespace
}  // namespace strata::kernels
