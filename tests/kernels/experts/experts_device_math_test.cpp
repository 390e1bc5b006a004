// The kernels of experts on CUDA, run on the host thread by thread.
#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/kernels/experts/gate.h>
#include <strata/kernels/experts/rows.h>

#include "cuda/emulation/thread_block.h"
#include "cuda/emulation/warps.h"
#include "cuda/experts/expert_products.h"
#include "cuda/experts/route_sort.h"
#include "cuda/experts/row_parts.h"
#include "kernels/experts/expert_problem.h"

namespace strata::kernels {
namespace {

using test::ExpertProblem;
using test::Tensor;
using test::Values;

template <bool kReversed>
void sort_on_device(const detail::RouteView& v) {
  const auto counts = std::make_unique<detail::RouteShared<256>>();
  const auto sums = std::make_unique<detail::RouteShared<detail::kMostExperts>>();
  const detail::EmulatedThreads<256, kReversed> block;
  for (std::int64_t run = 0; run < v.runs; ++run) detail::count_run(block, *counts, v, run);
  detail::sum_runs(detail::EmulatedThreads<detail::kMostExperts, kReversed>(), *sums, v);
  for (std::int64_t run = v.runs - 1; run >= 0; --run) detail::place_run(block, *counts, v, run);
}

TEST(ExpertsDeviceTest, RowsAreSortedAsOnTheHost) {
  for (const std::int64_t choices : {0, 1, 255, 1030, 2047, 2048, 5000})
    for (const std::int64_t experts : {1, 7, 1024}) {
      std::vector<std::int32_t> chosen = Values(3).below(choices, experts + 2);  // two that do not exist
      const auto n = static_cast<std::size_t>(choices);
      std::vector<std::int32_t> offsets(static_cast<std::size_t>(experts) + 1), source(n), position(n);
      route_rows_host({test::view(chosen), test::view(offsets), test::view(source), test::view(position)},
                      *test::pool());
      for (const bool reversed : {false, true}) {
        std::vector<std::int32_t> offsets2(offsets.size(), -7), source2(n, -7), position2(n, -7);
        const detail::RouteView v = {chosen.data(),
                                     offsets2.data(),
                                     source2.data(),
                                     position2.data(),
                                     choices,
                                     experts,
                                     detail::route_runs(choices)};
        reversed ? sort_on_device<true>(v) : sort_on_device<false>(v);
        EXPECT_EQ(offsets2, offsets) << choices << " choices of " << experts;
        EXPECT_EQ(source2, source) << choices << " choices of " << experts;
        EXPECT_EQ(position2, position) << choices << " choices of " << experts;
      }
    }
}

template <int kN, class T>
void sum_on_device(const SumRowsArgs& a, int chosen) {
  const int tokens = static_cast<int>(a.y.shape.dims[0]), h = static_cast<int>(a.y.shape.dims[1]);
  for (int t = 0; t < tokens; ++t)
    for (int first = 0; first < h; first += kN)
      detail::sum_part<kN>(a.rows.as<T>(), a.position.as<std::int32_t>() + t * chosen, chosen,
                           a.base.as<T>() + t * h, a.y.as<T>() + t * h, h, first);
}
template <int kN, class T>
void gate_on_device(const ExpertGateForwardArgs& a) {
  const int rows = static_cast<int>(a.a.shape.dims[0]), f = static_cast<int>(a.a.shape.dims[1]);
  const int parts = static_cast<int>(a.gate.parts());
  detail::with_gate(a.gate, [&](auto gate) {
    for (int r = 0; r < rows; ++r)
      for (int first = 0; first < f; first += kN)
        detail::expert_gate_part<kN>(gate, a.gate_up.as<T>() + r * parts * f,
                                     a.weights.as<float>()[a.source.as<std::int32_t>()[r]],
                                     a.a.as<T>() + r * f, (parts - 1) * f, first);
  });
}
template <class T>
void gate_back_on_device(const ExpertGateBackwardArgs& a) {
  const std::int64_t rows = a.da.shape.dims[0], f = a.da.shape.dims[1], parts = a.gate.parts();
  detail::with_gate(a.gate, [&](auto gate) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int32_t choice = a.source.as<std::int32_t>()[r];
      a.dweights.as<float>()[choice] = detail::expert_gate_row_backward(
          dispatch::EmulatedHalfWarp(), gate, a.gate_up.as<T>() + r * parts * f,
          a.weights.as<float>()[choice], a.da.as<T>() + r * f, a.dgate_up.as<T>() + r * parts * f, f,
          (parts - 1) * f);
    }
  });
}

template <class T>
void expect_gate_of_device(const ExpertGate& kind, std::vector<std::int32_t>& order, Tensor& in) {
  const std::int64_t rows = std::ssize(order), h = in.view().shape.dims[1], width = kind.parts() * h;
  constexpr int kPack = dispatch::Pack<T>::kSize;
  Tensor gates({rows, width}, Values(3).floats(rows * width, 5.0), dtype_of<T>),
      weights({rows}, Values(4).floats(rows)), a = Tensor::unwritten({rows, h}, dtype_of<T>), a_packed = a,
                                               a_single = a;
  ExpertGateForwardArgs gate = {gates.view(), weights.view(), test::view(order), a.view(), kind};
  expert_gate_forward_host(gate, *test::pool());
  gate.a = a_packed.view();
  gate_on_device<kPack, T>(gate);
  gate.a = a_single.view();
  gate_on_device<1, T>(gate);
  EXPECT_EQ(test::differing_bits(a_packed.values(), a.values()), 0u);
  EXPECT_EQ(test::differing_bits(a_single.values(), a.values()), 0u);

  Tensor dgates = gates, dgates2 = gates, dweights = Tensor::unwritten({rows}), dweights2 = dweights;
  ExpertGateBackwardArgs back = {gates.view(),  weights.view(),  test::view(order), in.view(),
                                 dgates.view(), dweights.view(), gate.gate};
  expert_gate_backward_host(back, *test::pool());
  back.dgate_up = dgates2.view();
  back.dweights = dweights2.view();
  gate_back_on_device<T>(back);
  EXPECT_EQ(test::differing_bits(dgates2.values(), dgates.values()), 0u);
  EXPECT_EQ(test::differing_bits(dweights2.values(), dweights.values()), 0u);
}

template <class T>
void expect_rows_of_device() {
  constexpr std::int64_t tokens = 5, chosen = 3, rows = tokens * chosen, h = 40;
  constexpr int kPack = dispatch::Pack<T>::kSize;
  std::vector<std::int32_t> order(rows);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i * 4 % rows);
  Tensor in({rows, h}, Values(1).floats(rows * h), dtype_of<T>),
      base({tokens, h}, Values(2).floats(tokens * h), dtype_of<T>), y = base, packed = base, single = base;
  SumRowsArgs sum = {in.view(), test::view(order), base.view(), y.view()};
  sum_rows_host(sum, *test::pool());
  sum.y = packed.view();
  sum_on_device<kPack, T>(sum, chosen);
  sum.y = single.view();
  sum_on_device<1, T>(sum, chosen);
  EXPECT_EQ(test::differing_bits(packed.values(), y.values()), 0u);
  EXPECT_EQ(test::differing_bits(single.values(), y.values()), 0u);

  for (const ExpertGate& kind :
       {ExpertGate{ExpertGate::Kind::clamped, 2.0f, 1.7f}, ExpertGate{ExpertGate::Kind::relu2}})
    expect_gate_of_device<T>(kind, order, in);
}

TEST(ExpertsDeviceTest, RowsHaveTheBitsOfTheHost) {
  expect_rows_of_device<float>();
  expect_rows_of_device<bf16>();
  expect_rows_of_device<f16>();
}

TEST(ExpertsDeviceTest, TilesHaveEachRowOfTheBlockOnce) {
  Values random(5);
  for (int round = 0; round < 200; ++round) {
    const std::vector<std::int32_t> counts =
        random.below(1 + random.below(1, 20)[0], round % 3 == 0 ? 5 : 700);
    const ExpertProblem p{{counts.begin(), counts.end()}, 1, 1};
    const std::vector<std::int32_t> offsets = p.offsets();
    const std::int64_t first = random.below(1, p.experts())[0], experts = p.experts() - first;
    const detail::ExpertOffsets o = {offsets.data(), first, experts, p.rows()};
    std::vector<int> times(static_cast<std::size_t>(p.rows()));
    for (std::int64_t i = 0; i < o.most_tiles(); ++i) {
      const auto tile = detail::expert_tile(o, i);
      for (int r = 0; r < tile.count; ++r) {
        ++times[static_cast<std::size_t>(tile.row + r)];
        EXPECT_GE(tile.row, offsets[static_cast<std::size_t>(first + tile.expert)]);
        EXPECT_LT(tile.row + r, offsets[static_cast<std::size_t>(first + tile.expert + 1)]);
      }
    }
    for (std::size_t r = 0; r < times.size(); ++r)
      EXPECT_EQ(times[r], static_cast<std::int32_t>(r) >= offsets[static_cast<std::size_t>(first)] ? 1 : 0);
    EXPECT_EQ(detail::expert_tile(o, o.most_tiles()).count, 0);
  }
}

/// All tiles of a product of rows, one after the other.
template <class T, bool kTensorCores, bool kForward, bool kReversed>
std::vector<float> rows_on_device(const ExpertProblem& p) {
  const detail::EmulatedWarps<detail::kExpertWarps, kReversed> block;
  const auto shared = std::make_unique<detail::ProductShared<T, kTensorCores, false, !kForward>>();
  const std::vector<std::int32_t> offsets = p.offsets();
  Tensor in = kForward ? p.x() : p.dy(), w = p.w(), b = p.b();
  const std::int64_t columns = kForward ? p.n : p.k;
  std::vector<T> out(static_cast<std::size_t>(p.rows() * columns));
  // Operands that are aligned, as those of tensor cores are.
  const auto aligned = [](Tensor& of) {
    std::vector<T> values(static_cast<std::size_t>(of.view().n_elems()));
    std::copy_n(of.view().template as<T>(), values.size(), values.data());
    return values;
  };
  const std::vector<T> of_in = aligned(in), of_w = aligned(w), of_b = aligned(b);
  const detail::ExpertRowProduct<T> product = {{offsets.data(), 0, p.experts(), p.rows()},
                                               of_in.data(),
                                               of_w.data(),
                                               kForward ? of_b.data() : nullptr,
                                               out.data(),
                                               kForward ? p.k : p.n,
                                               columns};
  for (std::int64_t i = 0; i < product.offsets.most_tiles(); ++i)
    for (std::int64_t c = 0; c < columns; c += detail::kExpertTile)
      detail::expert_row_tile<T, kTensorCores, kForward>(block, *shared, product, i, c);
  std::vector<float> values;
  for (const T x : out) values.push_back(to_f32(x));
  return values;
}
template <class T, class Out, bool kTensorCores, bool kReversed>
std::vector<float> weights_on_device(const ExpertProblem& p, bool accumulate) {
  const detail::EmulatedWarps<detail::kExpertWarps, kReversed> block;
  const auto shared = std::make_unique<detail::ProductShared<T, kTensorCores, true, true>>();
  const std::vector<std::int32_t> offsets = p.offsets();
  Tensor x = p.x(), dy = p.dy();
  std::vector<T> of_x(static_cast<std::size_t>(p.rows() * p.k)),
      of_dy(static_cast<std::size_t>(p.rows() * p.n));
  std::copy_n(x.view().as<T>(), of_x.size(), of_x.data());
  std::copy_n(dy.view().as<T>(), of_dy.size(), of_dy.data());
  std::vector<Out> dw;
  for (const float v : p.w().values()) dw.push_back(from_f32<Out>(v));
  const detail::ExpertWeightGradient<T, Out> gradient = {
      {offsets.data(), 0, p.experts(), p.rows()}, of_dy.data(), of_x.data(), dw.data(), p.n, p.k, accumulate};
  for (std::int64_t e = 0; e < p.experts(); ++e)
    for (std::int64_t row = 0; row < p.n; row += detail::kExpertTile)
      for (std::int64_t c = 0; c < p.k; c += detail::kExpertTile)
        detail::expert_weight_tile<T, kTensorCores>(block, *shared, gradient, e, row, c);
  std::vector<float> values;
  for (const Out v : dw) values.push_back(to_f32(v));
  return values;
}

template <class T, bool kTensorCores>
void expect_products_of_device(const ExpertProblem& p) {
  const double tolerance = dtype_of<T> == DType::f32 ? 1e-6 : dtype_of<T> == DType::f16 ? 1e-3 : 5e-3;
  const auto y = rows_on_device<T, kTensorCores, true, false>(p),
             dx = rows_on_device<T, kTensorCores, false, false>(p);
  EXPECT_LE(test::relative_error(y, p.want_forward(true)), tolerance);
  EXPECT_LE(test::relative_error(dx, p.want_backward_input()), tolerance);
  EXPECT_EQ(test::differing_bits(rows_on_device<T, kTensorCores, true, true>(p), y), 0u);
  EXPECT_EQ(test::differing_bits(rows_on_device<T, kTensorCores, false, true>(p), dx), 0u);
  for (const bool accumulate : {false, true}) {
    std::vector<double> want = p.want_backward_weight(accumulate);
    want.resize(static_cast<std::size_t>(p.experts() * p.n * p.k));
    EXPECT_LE(test::relative_error(weights_on_device<T, float, kTensorCores, true>(p, accumulate), want),
              1e-6);
    if (!accumulate) {
      EXPECT_LE(test::relative_error(weights_on_device<T, T, kTensorCores, false>(p, false), want),
                tolerance);
    }
  }
}

TEST(ExpertsDeviceTest, ProductsByMultiplyAddsFollowTheF64Reference) {
  expect_products_of_device<float, false>({{3, 0, 130, 1}, 137, 35, DType::f32});
  expect_products_of_device<bf16, false>({{3, 0, 130, 1}, 137, 35, DType::bf16});
  expect_products_of_device<f16, false>({{3, 0, 130, 1}, 137, 35, DType::f16});
}

TEST(ExpertsDeviceTest, ProductsOnTensorCoresFollowTheF64Reference) {
  expect_products_of_device<bf16, true>({{3, 0, 130, 1}, 136, 40, DType::bf16});
  expect_products_of_device<f16, true>({{3, 0, 130, 1}, 40, 136, DType::f16});
  expect_products_of_device<bf16, true>({{8, 257}, 8, 96, DType::bf16});
}

TEST(ExpertsDeviceTest, BiasGradientsHaveTheBitsOfTheHost) {
  const ExpertProblem p{{3, 0, 200, 64}, 300, 1, DType::bf16};
  const std::vector<float> host = p.backward_weight(DType::f32, 4);
  const std::vector<std::int32_t> offsets = p.offsets();
  Tensor dy = p.dy();
  std::vector<float> got(static_cast<std::size_t>(p.experts() * p.n));
  for (std::int64_t e = 0; e < p.experts(); ++e)
    for (std::int64_t c = 0; c < p.n; ++c)
      got[static_cast<std::size_t>(e * p.n + c)] =
          detail::expert_bias_sum(dy.view().as<bf16>(), offsets[static_cast<std::size_t>(e)],
                                  offsets[static_cast<std::size_t>(e) + 1], p.n, c);
  const std::vector<float> want(host.end() - std::ssize(got), host.end());
  EXPECT_EQ(test::differing_bits(got, want), 0u);
}

}  // namespace
}  // namespace strata::kernels
