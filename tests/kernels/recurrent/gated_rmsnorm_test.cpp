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
      dy{{rows, width}, Values(4).floats(rows*width), dtype()}, rstd = Tensor::unwritten({rows * heads});

  std::vector<float> forward(int threads = 2) {
    Tensor y = Tensor::unwritten({rows, width}, dtype());
    gated_rmsnorm_forward_host({x.view(), z.view(), weight.view(), y.view(), rstd.view(), eps},
                               *test::pool(threads));
    return y.values();
  }
  struct Gradients {
    std::vector<float> x, z, weight;
  };
  Gradients backward(bool in_place = false, int threads = 2) {
    Tensor d = dy, dx = Tensor::unwritten({rows, width}, dtype()), dz = dx, dweight = Tensor::unwritten({n});
    test::Workspace space(gated_rmsnorm_backward_workspace_bytes(rows * heads, n));
    Tensor& written = in_place ? d : dx;
    gated_rmsnorm_backward_host({.x = x.view(),
                                 .z = z.view(),
                                 .weight = weight.view(),
                                 .rstd = rstd.view(),
                                 .dy = d.view(),
                                 .dx = written.view(),
                                 .dz = dz.view(),
                                 .dweight = dweight.view(),
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

TEST_P(GatedRmsnormTest, BitsDoNotDependOnThreadsOrTheInstructionSet) {
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

TEST_P(GatedRmsnormTest, WhatDoesNotFitIsRefused) {
  test::InlineBackend backend;
  Stream stream = must(backend.create_stream(StreamRole::compute));
  Tensor y = Tensor::unwritten({rows, width}, dtype()), odd({36}, std::vector<float>(36), dtype());
  const auto message = [&](const TensorView& of_heads, const TensorView& out) {
    return std::string(
        gated_rmsnorm_forward_async(backend, stream, {x.view(), z.view(), of_heads, out, rstd.view(), eps})
            .message());
  };
  EXPECT_EQ(message(weight.view(), y.view()), "ok");
  EXPECT_THAT(message(odd.view(), y.view()),
              ::testing::HasSubstr("rows have 111 elements; they must be heads of 36"));
  EXPECT_THAT(message(weight.view(), weight.view()), ::testing::HasSubstr("40 rows of 111"));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GatedRmsnormTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace strata::kernels
