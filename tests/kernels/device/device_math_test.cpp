// Runs the functions of the device kernels on rows, elements and columns on the host, one lane after the
// other, and expects the bits of the host's ops. device_ops_test.cpp shows on a GPU that launches give each
// thread the right elements.
#include <cmath>
#include <limits>

#include <strata/simd/norm.h>
#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/kernels/cross_entropy.h>
#include <strata/kernels/elementwise.h>
#include <strata/kernels/rope.h>

#include "loss/cross_entropy_rows.h"
#include "cuda/row_math.h"
#include "kernels/device/device_tensors.h"
#include "support/op_test.h"

namespace strata::kernels {
namespace {

using dispatch::EmulatedHalfWarp;
using test::Tensor;
using test::Values;

constexpr EmulatedHalfWarp kEmulatedLanes;

template <class T>
class DeviceMathTest : public test::DeviceTensors<T> {};
using Stored = ::testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(DeviceMathTest, Stored);

TYPED_TEST(DeviceMathTest, Elements) {
  using T = TypeParam;
  constexpr std::int64_t n = 5003, f = 100;
  Tensor x = this->in({n}, 1, 8.0), dy = this->in({n}, 2), y = this->out({n}), want = y;
  constexpr float kSpecial[] = {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                0.0f,
                                -0.0f,
                                1e-40f};
  for (std::size_t i = 0; i < std::size(kSpecial); ++i) this->data(x)[700 * i + 3] = from_f32<T>(kSpecial[i]);
  const auto each = [&](const char* what, const auto& of) {
    for (std::int64_t i = 0; i < n; ++i) this->data(y)[i] = of(this->data(x)[i], this->data(dy)[i]);
    this->expect_same(y, want, what);
  };
  gelu_forward_host({x.view(), want.view()}, *this->pool_);
  each("gelu", [](T a, T) { return detail::stored_gelu(a); });
  gelu_backward_host({x.view(), dy.view(), want.view()}, *this->pool_);
  each("gelu backward", [](T a, T d) { return detail::stored_gelu_backward(a, d); });
  relu_forward_host({x.view(), want.view()}, *this->pool_);
  each("relu", [](T a, T) { return detail::stored_relu(a); });
  relu_backward_host({x.view(), dy.view(), want.view()}, *this->pool_);
  each("relu backward", [](T a, T d) { return detail::stored_relu_backward(a, d); });
  add_host({x.view(), dy.view(), want.view()}, *this->pool_);
  each("add", [](T a, T d) { return detail::stored_add(a, d); });

  Tensor gates = this->in({7, 2 * f}, 3, 8.0), dg = this->in({7, f}, 4);
  Tensor s = this->out({7, f}), want_s = s, ds = this->out({7, 2 * f}), want_ds = ds;
  swiglu_forward_host({gates.view(), want_s.view()}, *this->pool_);
  swiglu_backward_host({gates.view(), dg.view(), want_ds.view()}, *this->pool_);
  for (std::int64_t t = 0; t < 7; ++t)
    for (std::int64_t i = 0; i < f; ++i) {
      const std::int64_t at = t * 2 * f + i;
      const T gate = this->data(gates)[at], up = this->data(gates)[at + f];
      this->data(s)[t * f + i] = detail::stored_swiglu(gate, up);
      const auto d = detail::stored_swiglu_backward(gate, up, this->data(dg)[t * f + i]);
      this->data(ds)[at] = d.gate;
      this->data(ds)[at + f] = d.up;
    }
  this->expect_same(s, want_s, "swiglu");
  this->expect_same(ds, want_ds, "swiglu backward");
  swiglu_forward_host({gates.view(), want_s.view(), true}, *this->pool_);
  swiglu_backward_host({gates.view(), dg.view(), want_ds.view(), true}, *this->pool_);
  for (std::int64_t i = 0; i < 7 * f; ++i) {
    const std::int64_t at = i / f * 2 * f + i % f;
    const T gate = this->data(gates)[at], up = this->data(gates)[at + f];
    this->data(s)[i] = detail::stored_geglu(gate, up);
    const auto d = detail::stored_geglu_backward(gate, up, this->data(dg)[i]);
    this->data(ds)[at] = d.gate;
    this->data(ds)[at + f] = d.up;
  }
  this->expect_same(s, want_s, "geglu");
  this->expect_same(ds, want_ds, "geglu backward");
  scale_host({x.view(), want.view(), 3.3f}, *this->pool_);
  each("scale", [](T a, T) { return detail::stored_scale(a, 3.3f); });
}

TEST(DeviceSoftcapTest, SoftcapAndItsGradientHaveTheBitsOfTheHost) {
  constexpr std::int64_t n = 5003;
  Tensor x({n}, Values(1).floats(n, 40.0)), want = Tensor::unwritten({n});
  softcap_host({x.view(), want.view(), 30.0f}, *test::pool());
  std::vector<float> got = x.values();
  for (float& v : got) v = detail::capped_logit(v, 30.0f);
  EXPECT_EQ(test::differing_bits(got, want.values()), 0u);
  std::vector<float> row = want.values();
  detail::capped_row_gradient(row.data(), n, 17, 31.0f, 0.25f, 30.0f);
  for (std::int64_t i = 0; i < n; ++i) {
    float& v = got[static_cast<std::size_t>(i)];
    v = detail::loss_gradient(v, 31.0f, 0.25f, i == 17) * detail::cap_derivative(v, 30.0f);
  }
  EXPECT_EQ(test::differing_bits(got, row), 0u);
}

TYPED_TEST(DeviceMathTest, PairsAreRotated) {
  using T = TypeParam;
  constexpr std::int64_t rows = 5, d = 10, rotary_dim = 6;
  Tensor x = this->in({rows, d}, 1), table({rows, rotary_dim}, Values(2).floats(rows * rotary_dim));
  std::vector<std::int32_t> positions = {3, 0, 4, 1, 2};
  for (const bool interleaved : {false, true})
    for (const bool inverse : {false, true}) {
      Tensor y = x, want = this->out({rows, d});
      rope_host({x.view(), test::view(positions), table.view(), want.view(), 1, d, interleaved, inverse},
                *this->pool_);
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
          const float* row = this->floats(table) + positions[static_cast<std::size_t>(t)] * rotary_dim;
          T* at = this->data(y) + t * d;
          T& first = at[interleaved ? 2 * i : i];
          T& second = at[interleaved ? 2 * i + 1 : i + rotary_dim / 2];
          const float sine = row[rotary_dim / 2 + i];
          const auto pair = detail::rotate(first, second, row[i], inverse ? -sine : sine);
          first = pair.first;
          second = pair.second;
        }
      this->expect_same(y, want, "rotated");
    }
}

TYPED_TEST(DeviceMathTest, CrossEntropyOfLongRows) {
  for (const std::int64_t vocab : {1, 50, 4096, 9001}) {
    constexpr std::int64_t rows = 3;
    Tensor logits = this->in({rows, vocab}, 1, 9.0), d = this->out({rows, vocab}), want_d = d;
    Tensor losses = this->stat(rows), lse = losses, mean = this->stat(1);
    std::vector<std::int32_t> targets = {static_cast<std::int32_t>(vocab - 1), -1, 0};
    cross_entropy_forward_host({logits.view(), test::view(targets), losses.view(), lse.view(), mean.view()},
                               *this->pool_);
    cross_entropy_backward_host({logits.view(), test::view(targets), lse.view(), want_d.view(), 0.5f},
                                *this->pool_);
    for (std::int64_t t = 0; t < rows; ++t) {
      const auto* row = this->data(logits) + t * vocab;
      const float row_max = detail::max_of_row(kEmulatedLanes, row, vocab);
      double total = 0;
      for (std::int64_t run = 0; run * detail::kLseRun < vocab; ++run)
        total += static_cast<double>(detail::exp_sum_of_run(kEmulatedLanes, row, row_max, run, vocab));
      EXPECT_EQ(detail::lse_of(row_max, total), this->floats(lse)[t]) << vocab;
      const std::int32_t target = targets[static_cast<std::size_t>(t)];
      for (std::int64_t i = 0; i < vocab; ++i)
        this->data(d)[t * vocab + i] =
            target < 0 ? from_f32<TypeParam>(0.0f)
                       : detail::loss_gradient(row[i], this->floats(lse)[t], 0.5f, i == target);
    }
    this->expect_same(d, want_d, "dlogits");
  }
}

TEST(DeviceSumTest, TreeSumsMatchTheHost) {
  for (std::int64_t n = 0; n < 300; ++n) {
    // The magnitudes differ so much that any other order of additions shows.
    std::vector<double> x;
    for (const float value : Values(2).floats(n))
      x.push_back(std::ldexp(static_cast<double>(value), static_cast<int>(x.size() * 13 % 64)));
    const auto at = [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; };
    EXPECT_EQ(detail::tree_sum_of(n, at), simd::tree_sum(x)) << n;
    // As in the kernel: each of a few threads sums a run of 2^k values, and one thread sums the runs.
    std::int64_t run = 1;
    while (run * 8 < n) run *= 2;
    const auto of_run = [&](std::int64_t i) {
      return detail::tree_sum_of(std::min(run, n - i * run), [&](std::int64_t j) { return at(i * run + j); });
    };
    EXPECT_EQ(detail::tree_sum_of((n + run - 1) / run, of_run), simd::tree_sum(x)) << n;
  }
}

}  // namespace
}  // namespace strata::kernels
