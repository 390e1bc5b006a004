// Runs the norms of a GPU on the host, a block of threads after the other: rows that are staged in shared
// memory, by packs and by single elements, and rows that are not have the bits of the host's ops.
#include <cstring>

#include <gtest/gtest.h>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/layernorm.h>
#include <strata/kernels/rmsnorm.h>

#include "cuda/emulation/warps.h"
#include "cuda/norm/staged_norms.h"
#include "kernels/device/device_tensors.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using detail::NormBackward;
using detail::NormForward;
using detail::NormKind;
using test::Tensor;
using test::Values;

/// The block of a staged norm. Once a tile has arrived, the memory that it came from is poisoned: nothing of
/// it may be read a second time.
template <bool kReversed>
struct EmulatedNormBlock : detail::EmulatedWarps<detail::kNormWarps, kReversed> {
  using Warps = detail::EmulatedWarps<detail::kNormWarps, kReversed>;
  std::vector<std::pair<void*, std::size_t>> sources;
  mutable std::int64_t bytes_copied = 0;

  template <class F>
  void for_each_half_warp(const F& f) const {
    for (int i = 0; i < detail::kNormHalfWarps; ++i)
      f(dispatch::EmulatedHalfWarp(), kReversed ? detail::kNormHalfWarps - 1 - i : i);
  }
  void cp_async(void* to, const void* from, bool valid) const {
    bytes_copied += 16;
    Warps::cp_async(to, from, valid);
  }
  template <int kLeft>
  void wait_group() const {
    Warps::template wait_group<kLeft>();
    for (const auto& [at, bytes] : sources) std::memset(at, 0xFF, bytes);
  }
};

/// Runs a norm tile by tile and returns the bytes that were copied. `poisoned`: the op's tensors of rows that
/// are read.
template <int kN, bool kReversed, class Op, class... T>
std::int64_t run_staged(const Op& op, T*... poisoned) {
  // As of many rows, so that a tile has several.
  const detail::NormTile tile = detail::norm_tile<Op>(std::int64_t{1} << 20, op.rows.length);
  std::vector<std::byte> shared(tile.bytes + 16);
  void* at = shared.data();
  std::size_t space = shared.size();
  std::align(16, tile.bytes, at, space);
  std::int64_t bytes = 0;
  for (std::int64_t first = 0; first < op.rows.count; first += tile.rows) {
    [[maybe_unused]] const std::int64_t rows = std::min<std::int64_t>(tile.rows, op.rows.count - first);
    EmulatedNormBlock<kReversed> block;
    block.sources = {{static_cast<void*>(poisoned + first * op.rows.length),
                      static_cast<std::size_t>(rows * op.rows.length) * sizeof(typename Op::Element)}...};
    std::memset(shared.data(), 0xFF, shared.size());
    detail::norm_staged_rows<kN>(block, op,
                                 detail::NormStage<Op>{tile, static_cast<typename Op::Element*>(at)}, first);
    bytes += block.bytes_copied;
  }
  return bytes;
}
template <class Op>
void run_long_rows(const Op& op) {
  for (std::int64_t i = 0; i < op.rows.count; ++i) norm_row(dispatch::EmulatedHalfWarp(), op, i);
}

template <class T>
class DeviceNormsTest : public test::DeviceTensors<T> {
 protected:
  static constexpr int kSize = dispatch::Pack<T>::kSize;
  static constexpr std::int64_t kRows = 70;

  /// Calls check(run), where run(op, poisoned...) runs a norm in each of the ways that it can be run.
  template <class Check>
  void in_every_way(std::int64_t h, const Check& check) {
    {
      SCOPED_TRACE("rows that are not staged");
      check([](const auto& op, auto*...) { run_long_rows(op); });
    }
    {
      SCOPED_TRACE("single elements");
      check([](const auto& op, auto*... poisoned) { run_staged<1, false>(op, poisoned...); });
    }
    if (h % kSize != 0) return;
    SCOPED_TRACE("packs");
    check([](const auto& op, auto*... poisoned) {
      const std::int64_t staged =
          op.rows.count * op.rows.length * static_cast<std::int64_t>(sizeof...(poisoned));
      EXPECT_EQ((run_staged<kSize, false>(op, poisoned...)), staged * static_cast<std::int64_t>(sizeof(T)));
    });
    check([](const auto& op, auto*... poisoned) { run_staged<kSize, true>(op, poisoned...); });
  }
};
using Stored = ::testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(DeviceNormsTest, Stored);

constexpr std::int64_t kWidths[] = {1, 15, 16, 40, 100, 1537, 2056};

TYPED_TEST(DeviceNormsTest, LayerNorm) {
  using T = TypeParam;
  constexpr std::int64_t rows = TestFixture::kRows;
  for (const std::int64_t h : kWidths) {
    const Tensor x = this->in({rows, h}, 1, 2.0), dy = this->in({rows, h}, 4),
                 residual = this->in({rows, h}, 5);
    Tensor w = this->in({h}, 2), b = this->in({h}, 3), of_x = x, of_dy = dy, of_residual = residual;
    Tensor want_y = this->out({rows, h}), want_dx = want_y, want_mean = this->stat(rows),
           want_rstd = want_mean, dw = this->stat(h), db = dw;
    layernorm_forward_host(
        {of_x.view(), w.view(), b.view(), want_y.view(), want_mean.view(), want_rstd.view()}, *this->pool_);
    test::Workspace workspace(layernorm_backward_workspace_bytes(rows, h));
    layernorm_backward_host(
        {of_x.view(), w.view(), want_mean.view(), want_rstd.view(), of_dy.view(), want_dx.view(), dw.view(),
         db.view(), false, false, workspace.view(), of_residual.view()},
        *this->pool_);
    this->in_every_way(h, [&](const auto& run) {
      Tensor in = x, gradient = dy, y = this->out({rows, h}), mean = this->stat(rows), rstd = mean,
             dx = residual;
      const NormForward<T, NormKind::layernorm> forward = {.rows = {this->data(w), rows, h},
                                                           .x = this->data(in),
                                                           .y = this->data(y),
                                                           .rstd = this->floats(rstd),
                                                           .eps = 1e-5f,
                                                           .mean = this->floats(mean),
                                                           .bias = this->data(b)};
      run(forward, this->data(in));
      this->expect_same(y, want_y, "y");
      this->expect_same(mean, want_mean, "mean");
      this->expect_same(rstd, want_rstd, "rstd");
      in = x;
      const NormBackward<T, NormKind::layernorm> backward = {.rows = {this->data(w), rows, h},
                                                             .x = this->data(in),
                                                             .dy = this->data(gradient),
                                                             .dx = this->data(dx),
                                                             .rstd = this->floats(rstd),
                                                             .mean = this->floats(mean),
                                                             .residual = this->data(dx)};
      run(backward, this->data(in), this->data(gradient));
      this->expect_same(dx, want_dx, "dx");
    });
  }
}

TYPED_TEST(DeviceNormsTest, RmsNormInTheGradientsPlace) {
  using T = TypeParam;
  constexpr std::int64_t rows = TestFixture::kRows;
  for (const std::int64_t h : kWidths) {
    const Tensor x = this->in({rows, h}, 1, 2.0), dy = this->in({rows, h}, 4);
    Tensor w = this->in({h}, 2), of_x = x, of_dy = dy;
    Tensor want_y = this->out({rows, h}), want_dx = want_y, want_rstd = this->stat(rows), dw = this->stat(h);
    rmsnorm_forward_host(
        {.x = of_x.view(), .weight = w.view(), .y = want_y.view(), .rstd = want_rstd.view(), .offset = 0.75f},
        *this->pool_);
    test::Workspace workspace(rmsnorm_backward_workspace_bytes(rows, h));
    rmsnorm_backward_host({.x = of_x.view(),
                           .weight = w.view(),
                           .rstd = want_rstd.view(),
                           .dy = of_dy.view(),
                           .dx = want_dx.view(),
                           .dweight = dw.view(),
                           .workspace = workspace.view(),
                           .offset = 0.75f},
                          *this->pool_);
    this->in_every_way(h, [&](const auto& run) {
      Tensor in = x, gradient = dy, y = this->out({rows, h}), rstd = this->stat(rows);
      const NormForward<T, NormKind::rmsnorm> forward = {.rows = {this->data(w), rows, h},
                                                         .x = this->data(in),
                                                         .y = this->data(y),
                                                         .rstd = this->floats(rstd),
                                                         .eps = 1e-6f,
                                                         .offset = 0.75f};
      run(forward, this->data(in));
      this->expect_same(y, want_y, "y");
      this->expect_same(rstd, want_rstd, "rstd");
      in = x;
      const NormBackward<T, NormKind::rmsnorm> backward = {.rows = {this->data(w), rows, h},
                                                           .x = this->data(in),
                                                           .dy = this->data(gradient),
                                                           .dx = this->data(gradient),
                                                           .rstd = this->floats(rstd),
                                                           .offset = 0.75f};
      run(backward, this->data(in), this->data(gradient));
      this->expect_same(gradient, want_dx, "dx");
    });
  }
}

// The sum is x + added, rounded, where x was.
TYPED_TEST(DeviceNormsTest, FusedAddition) {
  using T = TypeParam;
  constexpr std::int64_t rows = TestFixture::kRows;
  for (const std::int64_t h : kWidths) {
    const Tensor x = this->in({rows, h}, 1, 2.0);
    Tensor w = this->in({h}, 2), b = this->in({h}, 3), added = this->in({rows, h}, 4), of_x = x;
    Tensor want_sum = this->out({rows, h}), want_y = want_sum, want_rms = want_sum,
           want_mean = this->stat(rows), want_rstd = want_mean, rms_rstd = want_mean;
    add_host({of_x.view(), added.view(), want_sum.view()}, *this->pool_);
    layernorm_forward_host(
        {want_sum.view(), w.view(), b.view(), want_y.view(), want_mean.view(), want_rstd.view()},
        *this->pool_);
    rmsnorm_forward_host({want_sum.view(), w.view(), want_rms.view(), rms_rstd.view()}, *this->pool_);
    this->in_every_way(h, [&](const auto& run) {  // nothing is poisoned: the sum is where x was
      Tensor sum = x, y = this->out({rows, h}), mean = this->stat(rows), rstd = mean;
      run(NormForward<T, NormKind::layernorm>{.rows = {this->data(w), rows, h},
                                              .x = this->data(sum),
                                              .y = this->data(y),
                                              .rstd = this->floats(rstd),
                                              .eps = 1e-5f,
                                              .mean = this->floats(mean),
                                              .bias = this->data(b),
                                              .added = this->data(added),
                                              .sum = this->data(sum)});
      this->expect_same(sum, want_sum, "sum");
      this->expect_same(y, want_y, "layer norm");
      this->expect_same(mean, want_mean, "mean");
      this->expect_same(rstd, want_rstd, "rstd");
      sum = x;
      run(NormForward<T, NormKind::rmsnorm>{.rows = {this->data(w), rows, h},
                                            .x = this->data(sum),
                                            .y = this->data(y),
                                            .rstd = this->floats(rstd),
                                            .eps = 1e-6f,
                                            .added = this->data(added),
                                            .sum = this->data(sum)});
      this->expect_same(sum, want_sum, "sum");
      this->expect_same(y, want_rms, "rmsnorm");
      this->expect_same(rstd, rms_rstd, "rstd of rmsnorm");
    });
  }
}

// Query and key heads are normalized, value heads are copied, or left where they are, or normalized without a
// weight.
TYPED_TEST(DeviceNormsTest, HeadsOfQueriesAndKeys) {
  using T = TypeParam;
  constexpr std::int64_t rows = 19, heads = 4, kv_heads = 2, all = heads + 2 * kv_heads;
  for (const auto& [d, values] : {std::pair<std::int64_t, bool>{9, false},
                                  {24, false},
                                  {24, true},
                                  {64, false},
                                  {9, true},
                                  {64, true}}) {
    // Offsets of which one and the rest to one are exact in every dtype.
    const float offset = values ? 1.0f : 0.75f;
    const std::int64_t normed = values ? all : heads + kv_heads;
    const Tensor x = this->in({rows, all * d}, 1, 2.0), dy = this->in({rows, all * d}, 4);
    Tensor q = this->in({d}, 2), k = this->in({d}, 3), of_x = x, of_dy = dy;
    Tensor want_y = this->out({rows, all * d}), want_dx = want_y, want_rstd = this->stat(rows * normed),
           dq = this->stat(d), dk = dq;
    qk_norm_forward_host({of_x.view(), q.view(), k.view(), want_y.view(), want_rstd.view(), heads, kv_heads,
                          1e-6f, offset, values},
                         *this->pool_);
    test::Workspace workspace(qk_norm_backward_workspace_bytes(rows, d, d));
    qk_norm_backward_host(
        {of_x.view(), q.view(), k.view(), want_rstd.view(), of_dy.view(), want_dx.view(), dq.view(),
         dk.view(), heads, kv_heads, false, false, workspace.view(), offset, values},
        *this->pool_);
    const detail::NormRows<T, NormKind::qk_norm> of_rows = {
        this->data(q), rows * all, d, this->data(k), {heads, kv_heads, d, d, values}};
    this->in_every_way(d, [&](const auto& run) {
      Tensor in = x, gradient = dy, y = this->out({rows, all * d}), dx = y, in_place = x,
             rstd = this->stat(rows * normed);
      NormForward<T, NormKind::qk_norm> forward = {.rows = of_rows,
                                                   .x = this->data(in),
                                                   .y = this->data(y),
                                                   .rstd = this->floats(rstd),
                                                   .eps = 1e-6f,
                                                   .offset = offset};
      run(forward, this->data(in));
      this->expect_same(y, want_y, "y");
      this->expect_same(rstd, want_rstd, "rstd");
      forward.x = forward.y = this->data(in_place);
      run_long_rows(forward);
      this->expect_same(in_place, want_y, "in place");
      in = x;
      run(NormBackward<T, NormKind::qk_norm>{.rows = of_rows,
                                             .x = this->data(in),
                                             .dy = this->data(gradient),
                                             .dx = this->data(dx),
                                             .rstd = this->floats(rstd),
                                             .offset = offset},
          this->data(in), this->data(gradient));
      this->expect_same(dx, want_dx, "dx");
    });
  }
}

// Heads of two lengths are not staged.
TYPED_TEST(DeviceNormsTest, HeadsOfTwoLengths) {
  using T = TypeParam;
  constexpr std::int64_t rows = 5, n = 48, m = 20, width = n + 2 * m;
  Tensor x = this->in({rows, width}, 1, 2.0), q = this->in({n}, 2), k = this->in({m}, 3),
         y = this->out({rows, width}), want = y, rstd = this->stat(2 * rows), want_rstd = rstd;
  qk_norm_forward_host({x.view(), q.view(), k.view(), want.view(), want_rstd.view()}, *this->pool_);
  run_long_rows(
      NormForward<T, NormKind::qk_norm>{.rows = {this->data(q), rows * 3, n, this->data(k), {1, 1, n, m}},
                                        .x = this->data(x),
                                        .y = this->data(y),
                                        .rstd = this->floats(rstd),
                                        .eps = 1e-6f});
  this->expect_same(y, want, "y");
  this->expect_same(rstd, want_rstd, "rstd");
}

TEST(DeviceNormTilesTest, FollowFromShapesAlone) {
  using Forward = NormForward<bf16, NormKind::rmsnorm>;
  using Backward = NormBackward<float, NormKind::rmsnorm>;
  EXPECT_EQ(detail::norm_tile<Forward>(16384, 4096).rows, 4);
  EXPECT_EQ(detail::norm_tile<Forward>(16384, 128).rows, 32);
  EXPECT_EQ(detail::norm_tile<Forward>(100, 128).rows, 1);
  EXPECT_EQ(detail::norm_tile<Backward>(16384, 8192).rows, 1);
  EXPECT_EQ(detail::norm_tile<Backward>(16384, 16384).rows, 0);
  for (const std::int64_t h : {1, 128, 4096, 8192})
    EXPECT_EQ(detail::norm_tile<Backward>(16384, h).stride * 4 % 128, 64) << "two rows on the same banks";
  EXPECT_LE(detail::norm_tile<Backward>(16384, 8192).bytes, std::size_t{96} << 10);
}

}  // namespace
}  // namespace strata::kernels
