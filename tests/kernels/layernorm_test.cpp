#include <strata/kernels/layernorm.h>

#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using NormSize = std::pair<std::int64_t, std::int64_t>;

struct Problem {
  explicit Problem(NormSize size)
      : rows(size.first),
        h(size.second),
        x(test::Values(1).floats(rows * h, 2.0, 0.5)),
        weight(test::Values(2).floats(h)),
        bias(test::Values(3).floats(h)),
        dy(test::Values(4).floats(rows * h)) {}
  std::int64_t rows, h;
  std::vector<float> x, weight, bias, dy;
  test::reference::Layernorm forward() const {
    return test::reference::layernorm_forward(test::widen(x), test::widen(weight), test::widen(bias), 1e-5);
  }
};

class LayernormTest : public ::testing::TestWithParam<NormSize> {};

TEST_P(LayernormTest, ForwardFollowsTheF64Reference) {
  const Problem p(GetParam());
  Tensor x({p.rows, p.h}, p.x), w({p.h}, p.weight), b({p.h}, p.bias), y = Tensor::unwritten({p.rows, p.h});
  Tensor mean = Tensor::unwritten({p.rows}), rstd = Tensor::unwritten({p.rows});
  layernorm_forward_host({x.view(), w.view(), b.view(), y.view(), mean.view(), rstd.view(), 1e-5f},
                         *test::pool());
  const auto want = p.forward();
  EXPECT_LE(test::relative_error(y.values(), want.y), 1e-6);
  EXPECT_LE(test::relative_error(mean.values(), want.mean), 1e-6);
  EXPECT_LE(test::relative_error(rstd.values(), want.rstd), 1e-6);
}

TEST_P(LayernormTest, BackwardFollowsTheF64Reference) {
  const Problem p(GetParam());
  const auto forward = p.forward();
  const auto want = test::reference::layernorm_backward(test::widen(p.x), test::widen(p.weight), forward.mean,
                                                        forward.rstd, test::widen(p.dy));
  Tensor x({p.rows, p.h}, p.x), w({p.h}, p.weight), dy({p.rows, p.h}, p.dy),
      dx = Tensor::unwritten({p.rows, p.h});
  Tensor mean({p.rows}, {forward.mean.begin(), forward.mean.end()}),
      rstd({p.rows}, {forward.rstd.begin(), forward.rstd.end()});
  Tensor dw = Tensor::unwritten({p.h}), db({p.h}, p.bias);
  test::Workspace workspace(layernorm_backward_workspace_bytes(p.rows, p.h));
  layernorm_backward_host({.x = x.view(),
                           .weight = w.view(),
                           .mean = mean.view(),
                           .rstd = rstd.view(),
                           .dy = dy.view(),
                           .dx = dx.view(),
                           .dweight = dw.view(),
                           .dbias = db.view(),
                           .accumulate_dbias = true,
                           .workspace = workspace.view()},
                          *test::pool());
  // If a row has one element, dx is a difference of equal numbers: zero except for rounding.
  EXPECT_LE(p.h == 1 ? 0.0 : test::relative_error(dx.values(), want.dx), 2e-6);
  EXPECT_LE(p.h == 1 ? 0.0 : test::relative_error(dw.values(), want.dweight), 2e-6);
  EXPECT_LE(test::relative_error(db.values(), test::reference::add(want.dbias, test::widen(p.bias))), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, LayernormTest,
                         ::testing::Values(NormSize{0, 8}, NormSize{1, 1}, NormSize{3, 17}, NormSize{65, 256},
                                           NormSize{130, 31}, NormSize{5000, 16}));

TEST(LayernormTest, DxMayAliasDyOrTheResidual) {
  const Problem p({5, 33});
  Tensor x({5, 33}, p.x), w({33}, p.weight), mean({5}, std::vector<float>(5, 0.1f)),
      rstd({5}, std::vector<float>(5, 1.5f));
  Tensor dy({5, 33}, p.dy), apart = Tensor::unwritten({5, 33}), added({5, 33}, p.x),
                            dw = Tensor::unwritten({33}), db = dw;
  test::Workspace workspace(layernorm_backward_workspace_bytes(5, 33));
  const auto run = [&](Tensor& dx, TensorView residual) {
    layernorm_backward_host({.x = x.view(),
                             .weight = w.view(),
                             .mean = mean.view(),
                             .rstd = rstd.view(),
                             .dy = dy.view(),
                             .dx = dx.view(),
                             .dweight = dw.view(),
                             .dbias = db.view(),
                             .workspace = workspace.view(),
                             .residual = residual},
                            *test::pool());
  };
  run(apart, {});
  run(added, added.view());
  run(dy, {});
  EXPECT_EQ(test::differing_bits(dy.values(), apart.values()), 0u);
  for (std::size_t i = 0; i < p.x.size(); ++i) EXPECT_EQ(added.values()[i], p.x[i] + apart.values()[i]);
}

TEST(LayernormTest, ANaNStaysInItsRow) {
  std::vector<float> values(2 * 20, 1.0f);
  values[3] = std::nanf("");
  Tensor x({2, 20}, values), w({20}, std::vector<float>(20, 1.0f)), b({20}, std::vector<float>(20, 0.25f));
  Tensor y = Tensor::unwritten({2, 20}), mean = Tensor::unwritten({2}), rstd = Tensor::unwritten({2});
  layernorm_forward_host({x.view(), w.view(), b.view(), y.view(), mean.view(), rstd.view(), 1e-5f},
                         *test::pool());
  EXPECT_TRUE(std::isnan(y.values()[19]));
  EXPECT_EQ(y.values()[20], 0.25f);
}

}  // namespace
}  // namespace strata::kernels
