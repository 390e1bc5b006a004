#include <strata/kernels/recurrent/gated_rmsnorm.h>

#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "support/isas.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using test::Tensor;
using test::Values;

class GatedRmsnormTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t rows = 40, heads = 3, n = 37, width = heads * n;
  static constexpr float eps = 1e-3f;
  static DType dtype() { return GetParam(); }
  static double tolerance() { return dtype() == DType::f32 ? 1e-6 : dtype() == DType::f16 ? 5e-4 : 4e-3; }
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

  Tensor x{{rows, width}, Values(1).floats(rows*width), dtype()},
      z{{rows, width}, Values(2).floats(rows*width, 4.0), dtype()},
      weight{{n}, Values(3).floats(n, 1.0, 1.0), dtype()},
      of_heads{{width}, Values(5).floats(width, 1.0, 1.0), dtype()},
      dy{{rows, width}, Values(4).floats(rows*width), dtype()}, rstd = Tensor::unwritten({rows * heads});

  /// The norm of Mamba-2: heads have weights of their own, and the gate may come first.
  bool has_weights = false, gate_first = false;
  TensorView weights() { return has_weights ? of_heads.view() : weight.view(); }
  std::int64_t head_dim() const { return has_weights ? n : 0; }

  std::vector<float> forward(int threads = 2) {
    Tensor y = Tensor::unwritten({rows, width}, dtype());
    gated_rmsnorm_forward_host(
        {x.view(), z.view(), weights(), y.view(), rstd.view(), eps, head_dim(), gate_first},
        *test::pool(threads));
    return y.values();
  }
  struct Gradients {
    std::vector<float> x, z, weight;
  };
  Gradients backward(bool in_place = false, int threads = 2) {
    Tensor d = dy, dx = Tensor::unwritten({rows, width}, dtype()), dz = dx,
           dweight = Tensor::unwritten(weights().shape);
    test::Workspace space(gated_rmsnorm_backward_workspace_bytes(rows * width, weights().n_elems()));
    Tensor& written = in_place ? d : dx;
    gated_rmsnorm_backward_host({.x = x.view(),
                                 .z = z.view(),
                                 .weight = weights(),
                                 .rstd = rstd.view(),
                                 .dy = d.view(),
                                 .dx = written.view(),
                                 .dz = dz.view(),
                                 .dweight = dweight.view(),
                                 .head_dim = head_dim(),
                                 .gate_first = gate_first,
                                 .workspace = space.view()},
                                *test::pool(threads));
    return {written.values(), dz.values(), dweight.values()};
  }
};

TEST_P(GatedRmsnormTest, FollowsTheF64Reference) {
  const auto of_x = test::widen(x.values()), of_z = test::widen(z.values()), w = test::widen(weight.values()),
             d = test::widen(dy.values());
  std::vector<double> y(of_x.size()), dx(of_x.size()), dz(of_x.size()), dweight(index(n));
  for (std::int64_t head = 0; head < rows * heads; ++head) {
    double squares = 0, product = 0;
    for (std::int64_t i = 0; i < n; ++i) squares += of_x[index(head * n + i)] * of_x[index(head * n + i)];
    const double r = 1 / std::sqrt(squares / n + static_cast<double>(eps));
    std::vector<double> slopes;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t at = index(head * n + i);
      const double s = 1 / (1 + std::exp(-of_z[at])), gate = of_z[at] * s, normal = of_x[at] * r;
      y[at] = normal * w[index(i)] * gate;
      dz[at] = d[at] * normal * w[index(i)] * (s + of_z[at] * s * (1 - s));
      dweight[index(i)] += d[at] * normal * gate;
      slopes.push_back(d[at] * gate * w[index(i)]);
      product += slopes.back() * normal / n;
    }
    for (std::int64_t i = 0; i < n; ++i)
      dx[index(head * n + i)] = r * (slopes[index(i)] - of_x[index(head * n + i)] * r * product);
  }
  EXPECT_LE(test::relative_error(forward(), y), tolerance());
  const Gradients got = backward();
  EXPECT_LE(test::relative_error(got.x, dx), tolerance());
  EXPECT_LE(test::relative_error(got.z, dz), tolerance());
  EXPECT_LE(test::relative_error(got.weight, dweight), 2e-6);
}

TEST_P(GatedRmsnormTest, AGateThatComesFirstFollowsTheF64Reference) {
  has_weights = gate_first = true;
  const auto of_x = test::widen(x.values()), of_z = test::widen(z.values()),
             w = test::widen(of_heads.values()), d = test::widen(dy.values());
  std::vector<double> y(of_x.size()), dx(of_x.size()), dz(of_x.size()), dweight(index(width));
  for (std::int64_t head = 0; head < rows * heads; ++head) {
    double squares = 0, product = 0;
    std::vector<double> s, u;
    for (std::int64_t i = 0; i < n; ++i) {
      s.push_back(1 / (1 + std::exp(-of_z[index(head * n + i)])));
      u.push_back(of_x[index(head * n + i)] * of_z[index(head * n + i)] * s.back());
      squares += u.back() * u.back();
    }
    const double r = 1 / std::sqrt(squares / n + static_cast<double>(eps));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t at = index(head * n + i), of_w = index(head % heads * n + i);
      y[at] = u[index(i)] * r * w[of_w];
      dweight[of_w] += d[at] * u[index(i)] * r;
      product += d[at] * w[of_w] * u[index(i)] * r / n;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t at = index(head * n + i);
      const double du = r * (d[at] * w[index(head % heads * n + i)] - u[index(i)] * r * product);
      dx[at] = du * of_z[at] * s[index(i)];
      dz[at] = du * of_x[at] * (s[index(i)] + of_z[at] * s[index(i)] * (1 - s[index(i)]));
    }
  }
  EXPECT_LE(test::relative_error(forward(), y), tolerance());
  const Gradients got = backward();
  EXPECT_LE(test::relative_error(got.x, dx), tolerance());
  EXPECT_LE(test::relative_error(got.z, dz), tolerance());
  EXPECT_LE(test::relative_error(got.weight, dweight), 2e-6);
}

TEST_P(GatedRmsnormTest, WeightsOfHeadsThatAreEqualAreThatOfAll) {
  const std::vector<float> want = forward();
  const Gradients gradients = backward();
  has_weights = true;
  of_heads = Tensor({width}, test::joined({weight.values(), weight.values(), weight.values()}), dtype());
  EXPECT_EQ(test::differing_bits(forward(), want), 0u);
  const Gradients got = backward();
  EXPECT_EQ(test::differing_bits(got.x, gradients.x), 0u);
  EXPECT_EQ(test::differing_bits(got.z, gradients.z), 0u);
  for (std::int64_t i = 0; i < n; ++i)
    EXPECT_NEAR(got.weight[index(i)] + got.weight[index(n + i)] + got.weight[index(2 * n + i)],
                gradients.weight[index(i)], 1e-4f);
}

TEST_P(GatedRmsnormTest, BitsDoNotDependOnThreadsOrTheInstructionSet) {
  for (const bool is_of_mamba : {false, true}) {
    has_weights = gate_first = is_of_mamba;
    const std::vector<float> want = forward(1);
    const Gradients gradients = backward(false, 1);
    for (const simd::CpuIsa name : test::supported_isas()) {
      const test::IsaScope isa(name);
      EXPECT_EQ(test::differing_bits(forward(3), want), 0u) << to_string(name);
      const Gradients got = backward(true, 3);
      EXPECT_EQ(test::differing_bits(got.x, gradients.x), 0u) << to_string(name);
      EXPECT_EQ(test::differing_bits(got.z, gradients.z), 0u) << to_string(name);
      EXPECT_EQ(test::differing_bits(got.weight, gradients.weight), 0u) << to_string(name);
    }
  }
}

TEST_P(GatedRmsnormTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor y = Tensor::unwritten({rows, width}, dtype()), odd({36}, std::vector<float>(36), dtype());
  const auto message = [&](const TensorView& of_row, const TensorView& out) {
    return std::string(
        gated_rmsnorm_forward_async(backend, stream, {x.view(), z.view(), of_row, out, rstd.view(), eps})
            .message());
  };
  EXPECT_EQ(message(weight.view(), y.view()), "ok");
  EXPECT_THAT(message(odd.view(), y.view()),
              ::testing::HasSubstr("rows have 111 elements; they must be heads of 36"));
  EXPECT_THAT(message(weight.view(), weight.view()), ::testing::HasSubstr("40 rows of 111"));
  const Status status = gated_rmsnorm_forward_async(
      backend, stream, {x.view(), z.view(), odd.view(), y.view(), rstd.view(), eps, n});
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("weight has 36 elements; it must have 37, those of a head, or 111"));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GatedRmsnormTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace strata::kernels
