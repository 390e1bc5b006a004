#include <strata/kernels/rmsnorm.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::widen;
using test::reference::central_differences;
using test::reference::dot;
using test::reference::Vec;

struct RmsNormSize {
  std::int64_t rows, h;
  float offset = 0;
};
class RmsnormTest : public ::testing::TestWithParam<RmsNormSize> {};

TEST_P(RmsnormTest, ForwardFollowsTheF64Reference) {
  const auto [rows, h, offset] = GetParam();
  const auto x = test::Values(1).floats(rows * h, 2.0, 0.5), w = test::Values(2).floats(h);
  Tensor in({rows, h}, x), weight({h}, w), y = Tensor::unwritten({rows, h}), rstd = Tensor::unwritten({rows});
  rmsnorm_forward_host({in.view(), weight.view(), y.view(), rstd.view(), 1e-5f, {}, {}, offset},
                       *test::pool());
  const Vec scale = test::reference::plus(widen(w), static_cast<double>(offset));
  EXPECT_LE(test::relative_error(y.values(), test::reference::rmsnorm_forward(widen(x), scale, 1e-5)), 1e-6);
}

TEST_P(RmsnormTest, BackwardIsTheCentralDifferenceInF64) {
  const auto [rows, h, offset] = GetParam();
  const auto x = test::Values(1).floats(rows * h, 2.0, 0.5), w = test::Values(2).floats(h),
             d = test::Values(3).floats(rows * h);
  Tensor in({rows, h}, x), weight({h}, w), y = Tensor::unwritten({rows, h}), rstd = Tensor::unwritten({rows});
  rmsnorm_forward_host({in.view(), weight.view(), y.view(), rstd.view(), 1e-5f}, *test::pool());
  Tensor dx({rows, h}, d), dw({h}, w);  // dx overwrites dy
  test::Workspace workspace(rmsnorm_backward_workspace_bytes(rows, h));
  rmsnorm_backward_host({in.view(),
                         weight.view(),
                         rstd.view(),
                         dx.view(),
                         dx.view(),
                         dw.view(),
                         true,
                         workspace.view(),
                         {},
                         offset},
                        *test::pool());
  const auto f = [&, base = static_cast<double>(offset)](const Vec& a, const Vec& b) {
    return dot(widen(d), test::reference::rmsnorm_forward(a, test::reference::plus(b, base), 1e-5));
  };
  const Vec want_dx = central_differences([&](const Vec& v) { return f(v, widen(w)); }, widen(x));
  const Vec want_dw = central_differences([&](const Vec& v) { return f(widen(x), v); }, widen(w));

  EXPECT_LE(test::relative_error(dx.values(), want_dx), 5e-6);
  EXPECT_LE(test::relative_error(dw.values(), test::reference::add(want_dw, widen(w))), 5e-6);
}

TEST_P(RmsnormTest, ResidualIsAddedToDx) {
  const auto [rows, h, offset] = GetParam();
  const auto x = test::Values(1).floats(rows * h, 2.0, 0.5), w = test::Values(2).floats(h),
             d = test::Values(3).floats(rows * h), past = test::Values(4).floats(rows * h);
  Tensor in({rows, h}, x), weight({h}, w), dy({rows, h}, d), joined({rows, h}, past);
  Tensor rstd({rows}, test::Values(5).floats(rows)), dx = Tensor::unwritten({rows, h}), dw({h}, w), dw2 = dw;
  test::Workspace workspace(rmsnorm_backward_workspace_bytes(rows, h));
  rmsnorm_backward_host({in.view(),
                         weight.view(),
                         rstd.view(),
                         dy.view(),
                         dx.view(),
                         dw.view(),
                         true,
                         workspace.view(),
                         {},
                         offset},
                        *test::pool());
  rmsnorm_backward_host({in.view(), weight.view(), rstd.view(), dy.view(), joined.view(), dw2.view(), true,
                         workspace.view(), joined.view(), offset},
                        *test::pool());
  for (std::size_t i = 0; i < past.size(); ++i) EXPECT_EQ(joined.values()[i], past[i] + dx.values()[i]);
  EXPECT_EQ(test::differing_bits(dw.values(), dw2.values()), 0u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsnormTest,
                         ::testing::Values(RmsNormSize{0, 8}, RmsNormSize{1, 3}, RmsNormSize{3, 17},
                                           RmsNormSize{70, 24}, RmsNormSize{6, 300}, RmsNormSize{130, 15},
                                           RmsNormSize{70, 24, 1}));

struct Heads {
  std::int64_t rows, heads, kv_heads, n, m;
  float offset = 0;
  bool values = false;
};
class QkNormTest : public ::testing::TestWithParam<Heads> {};

TEST_P(QkNormTest, FollowsTheF64ReferenceForwardAndBackward) {
  const auto [rows, heads, kv_heads, n, m, offset, values] = GetParam();
  const std::int64_t width = heads * n + 2 * kv_heads * m, stats = heads + (values ? 2 : 1) * kv_heads;
  const auto x = test::Values(1).floats(rows * width, 2.0), q = test::Values(2).floats(n),
             k = test::Values(3).floats(m), dy = test::Values(4).floats(rows * width);
  Tensor in({rows, width}, x), qw({n}, q), kw({m}, k), y = Tensor::unwritten({rows, width}),
                                                       rstd = Tensor::unwritten({rows * stats});
  qk_norm_forward_host(
      {in.view(), qw.view(), kw.view(), y.view(), rstd.view(), heads, kv_heads, 1e-6f, offset, values},
      *test::pool());
  const auto forward = [&](const Vec& a, const Vec& b, const Vec& c) {
    const auto base = static_cast<double>(offset);
    return test::reference::qk_norm_forward(a, test::reference::plus(b, base), test::reference::plus(c, base),
                                            static_cast<std::size_t>(heads),
                                            static_cast<std::size_t>(kv_heads), 1e-6, values);
  };
  EXPECT_LE(test::relative_error(y.values(), forward(widen(x), widen(q), widen(k))), 1e-6);

  Tensor d_y({rows, width}, dy), dx = Tensor::unwritten({rows, width}), dq = Tensor::unwritten({n}),
                                 dk({m}, k);
  test::Workspace workspace(qk_norm_backward_workspace_bytes(rows, n, m));
  qk_norm_backward_host({in.view(), qw.view(), kw.view(), rstd.view(), d_y.view(), dx.view(), dq.view(),
                         dk.view(), heads, kv_heads, false, true, workspace.view(), offset, values},
                        *test::pool());
  const auto f = [&](const Vec& a, const Vec& b, const Vec& c) { return dot(widen(dy), forward(a, b, c)); };
  EXPECT_LE(
      test::relative_error(
          dx.values(), central_differences([&](const Vec& v) { return f(v, widen(q), widen(k)); }, widen(x))),
      5e-6);
  EXPECT_LE(
      test::relative_error(
          dq.values(), central_differences([&](const Vec& v) { return f(widen(x), v, widen(k)); }, widen(q))),
      5e-6);
  const Vec want_dk = central_differences([&](const Vec& v) { return f(widen(x), widen(q), v); }, widen(k));
  EXPECT_LE(test::relative_error(dk.values(), test::reference::add(want_dk, widen(k))), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(Shapes, QkNormTest,
                         ::testing::Values(Heads{3, 1, 1, 4, 4}, Heads{5, 4, 2, 7, 7}, Heads{70, 2, 1, 3, 3},
                                           Heads{5, 4, 2, 7, 7, 1}));
INSTANTIATE_TEST_SUITE_P(WithValues, QkNormTest,
                         ::testing::Values(Heads{5, 4, 2, 7, 7, 0, true}, Heads{70, 2, 1, 3, 3, 1, true},
                                           Heads{9, 1, 1, 40, 40, 0.5f, true}));
// One segment of all query heads and one of all key heads.
INSTANTIATE_TEST_SUITE_P(WholeProjections, QkNormTest,
                         ::testing::Values(Heads{5, 1, 1, 24, 12}, Heads{70, 1, 1, 6, 3, 1}));

}  // namespace
}  // namespace strata::kernels
