// The kernels of recurrent ops on CUDA, run on the host thread by thread.
#include <gtest/gtest.h>

#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/kernels/recurrent/gated_rmsnorm.h>

#include "cuda/emulation/thread_block.h"
#include "cuda/recurrent/delta_unit.h"
#include "cuda/recurrent/gated_norm_rows.h"
#include "kernels/recurrent/conv_problem.h"
#include "kernels/recurrent/delta_problem.h"
#include "kernels/recurrent/scan_problem.h"
#include "recurrent/conv_operands.h"
#include "recurrent/delta_operands.h"
#include "recurrent/scan_operands.h"

namespace strata::kernels {
namespace {

using test::ConvProblem;
using test::DeltaProblem;
using test::ScanProblem;
using test::Tensor;
using test::Values;

template <bool kReversed>
using Block = detail::DeltaBlock<detail::EmulatedThreads<detail::kDeltaThreads, kReversed>,
                                 dispatch::EmulatedHalfWarp, true>;

/// What a GPU computes of a problem in f32.
template <bool kReversed>
DeltaProblem::Results run_on_device(DeltaProblem& p) {
  const Block<kReversed> block;
  Tensor out = Tensor::unwritten(p.dout_shape()),
         last = Tensor::unwritten(
             {p.rows / p.heads.seq, p.heads.value_heads, p.heads.key_dim, p.heads.value_dim}),
         dqkv = Tensor::unwritten({p.rows, p.heads.qkv_width()}),
         dg = Tensor::unwritten({p.rows, p.heads.value_heads}), dbeta = dg;
  test::Workspace space(delta_rule_forward_workspace_bytes(p.rows, p.heads)),
      more(delta_rule_backward_workspace_bytes(p.rows, p.heads));
  DeltaRuleForwardArgs args = p.forward_args(out, space);
  args.last = last.view();
  const auto forward = detail::delta_forward_operands<float>(args);
  const auto backward = detail::delta_backward_operands<float>(
      DeltaRuleBackwardArgs{args.qkv, args.g, args.beta, args.doc_start, p.dout.view(), dqkv.view(),
                            dg.view(), dbeta.view(), p.heads, more.view()});
  const std::int64_t slots = detail::delta_slots(forward.of.pairs);
  for (std::int64_t at = 0; at < slots; ++at) {
    detail::forward_slot(block, forward, at, slots);
    detail::backward_slot(block, backward, at, slots);
  }
  return {out.values(), dqkv.values(), dg.values(), dbeta.values(), last.values()};
}

TEST(RecurrentDeviceTest, TheDeltaRuleHasTheBitsOfTheHost) {
  for (const std::int64_t rows : {1, 66, 150}) {
    DeltaProblem problem(rows, DType::f32);
    if (rows == 150) problem.pack({70, 71, 140});
    const std::vector<float> want = problem.run().all();
    EXPECT_EQ(test::differing_bits(run_on_device<false>(problem).all(), want), 0u) << rows;
    EXPECT_EQ(test::differing_bits(run_on_device<true>(problem).all(), want), 0u) << rows;
  }
}

TEST(RecurrentDeviceTest, CachedRowsOfTheDeltaRuleHaveTheBitsOfTheHost) {
  DeltaProblem problem(70, DType::f32);
  const std::vector<float> want = problem.run().out;
  problem.heads.seq = 0;
  std::vector<std::int32_t> positions, slots(70, 0);
  for (std::int32_t t = 0; t < 70; ++t) positions.push_back(t);
  Tensor state = Tensor::unwritten({1, problem.heads.key_heads, delta_state_elems(problem.heads)}),
         out = Tensor::unwritten(problem.dout_shape());
  test::Workspace space(cached_delta_rule_workspace_bytes(problem.heads));
  const auto cached = detail::delta_cached_operands<float>(
      CachedDeltaRuleArgs{problem.qkv.view(), problem.g.view(), problem.beta.view(), test::view(positions),
                          test::view(slots), state.view(), out.view(), problem.heads, space.view()});
  for (std::int64_t at = 0; at < 2; ++at) detail::cached_slot(Block<false>(), cached, at, 2);
  EXPECT_EQ(test::differing_bits(out.values(), want), 0u);
}

/// What a GPU computes of a scan in f32.
template <bool kReversed>
ScanProblem::Results run_scan_on_device(ScanProblem& p) {
  const Block<kReversed> block;
  return p.run_by(
      [&](const StateScanForwardArgs& args) {
        const auto a = detail::scan_forward_operands<float>(args);
        const std::int64_t slots = detail::delta_slots(a.of.pairs);
        for (std::int64_t at = 0; at < slots; ++at) detail::forward_slot(block, a, at, slots);
      },
      [&](const StateScanBackwardArgs& args) {
        const auto a = detail::scan_backward_operands<float>(args);
        const std::int64_t slots = detail::delta_slots(a.of.pairs);
        for (std::int64_t at = 0; at < slots; ++at) detail::backward_slot(block, a, at, slots);
        for (std::int64_t t = 0; t < p.rows; ++t)
          for (std::int64_t part = 0; part < 2; ++part)
            for (std::int64_t group = 0; group < p.heads.groups; ++group)
              for (std::int64_t i = 0; i < p.heads.state_dim; ++i)
                a.dxbc[t * a.of.width() + a.key_column(part, group, i)] = a.key_gradient(t, part, group, i);
      });
}

TEST(RecurrentDeviceTest, TheStateScanHasTheBitsOfTheHost) {
  for (const std::int64_t rows : {1, 66, 150}) {
    ScanProblem problem(rows, DType::f32);
    if (rows == 150) problem.pack({70, 71, 140});
    const std::vector<float> want = problem.run().of_rows();
    EXPECT_EQ(test::differing_bits(run_scan_on_device<false>(problem).of_rows(), want), 0u) << rows;
    EXPECT_EQ(test::differing_bits(run_scan_on_device<true>(problem).of_rows(), want), 0u) << rows;
  }
}

TEST(RecurrentDeviceTest, CachedRowsOfTheStateScanHaveTheBitsOfTheHost) {
  ScanProblem problem(70, DType::f32);
  const std::vector<float> want = problem.run().out;
  problem.heads.seq = 0;
  std::vector<std::int32_t> positions, slots(70, 0);
  for (std::int32_t t = 0; t < 70; ++t) positions.push_back(t);
  Tensor state = Tensor::unwritten({1, problem.heads.blocks(), scan_state_elems(problem.heads)}),
         out = Tensor::unwritten(problem.dout_shape());
  test::Workspace space(cached_state_scan_workspace_bytes(problem.heads));
  const auto cached = detail::scan_cached_operands<float>(CachedStateScanArgs{
      problem.xbc.view(), problem.step.view(), problem.g.view(), problem.d.view(), test::view(positions),
      test::view(slots), state.view(), out.view(), problem.heads, space.view()});
  for (std::int64_t at = 0; at < 2; ++at) detail::cached_slot(Block<false>(), cached, at, 2);
  EXPECT_EQ(test::differing_bits(out.values(), want), 0u);
}

TEST(RecurrentDeviceTest, ConvolutionsHaveTheBitsOfTheHost) {
  ConvProblem problem(140, 37, 4, DType::f32);
  problem.doc_start.assign(140, 0);
  std::fill(problem.doc_start.begin() + 66, problem.doc_start.end(), 66);
  const ConvProblem::Results want = problem.run();
  Tensor y = Tensor::unwritten({140, 37});
  const auto c = detail::conv_operands<float>(problem.forward_args(y));
  const float* const dy = problem.dy.view().as<float>();
  std::vector<float> of_y, of_dx, of_weight(37 * 4), of_bias(37);
  for (std::int64_t row = 0; row < 140; ++row)
    for (std::int64_t channel = 0; channel < 37; ++channel) {
      of_y.push_back(detail::conv_activation(c.sum(row, channel), true));
      of_dx.push_back(c.d_x(dy, row, channel));
    }
  EXPECT_EQ(test::differing_bits(of_y, want.y), 0u);
  EXPECT_EQ(test::differing_bits(of_dx, want.dx), 0u);
  for (std::int64_t channel = 0; channel < 37; ++channel)
    for (std::int64_t first = 0; first < 140; first += 64) {
      float sums[kMostConvTaps + 1];
      c.d_weights(dy, first, std::min<std::int64_t>(first + 64, 140), channel, sums);
      for (std::int64_t k = 0; k < 4; ++k) {
        float& sum = of_weight[static_cast<std::size_t>(channel * 4 + k)];
        sum = first == 0 ? sums[k] : sum + sums[k];
      }
      float& sum = of_bias[static_cast<std::size_t>(channel)];
      sum = first == 0 ? sums[4] : sum + sums[4];
    }
  EXPECT_EQ(test::differing_bits(of_weight, want.dweight), 0u);
  EXPECT_EQ(test::differing_bits(of_bias, want.dbias), 0u);
}

/// Rows of 7 heads of 37 elements, which share a weight or have one each; the gate is first or last.
template <class Rule>
void expect_gated_norms_of_host(bool gate_first, std::int64_t of_weight) {
  constexpr std::int64_t rows = 70, n = 37, width = 7 * n, heads = rows * 7;
  const std::int64_t columns = of_weight * n;
  Tensor x({rows, width}, Values(1).floats(rows * width)),
      z({rows, width}, Values(2).floats(rows * width, 4.0)), weight({columns}, Values(3).floats(columns)),
      dy({rows, width}, Values(4).floats(rows * width)),
      y = Tensor::unwritten({rows, width}), dx = y, dz = y, y2 = y, dx2 = y, dz2 = y,
      rstd = Tensor::unwritten({heads}), dweight = Tensor::unwritten({columns});
  gated_rmsnorm_forward_host({x.view(), z.view(), weight.view(), y.view(), rstd.view(), 1e-5f, n, gate_first},
                             *test::pool());
  test::Workspace space(gated_rmsnorm_backward_workspace_bytes(rows * width, columns));
  gated_rmsnorm_backward_host({.x = x.view(),
                               .z = z.view(),
                               .weight = weight.view(),
                               .rstd = rstd.view(),
                               .dy = dy.view(),
                               .dx = dx.view(),
                               .dz = dz.view(),
                               .dweight = dweight.view(),
                               .head_dim = n,
                               .gate_first = gate_first,
                               .workspace = space.view()},
                              *test::pool());
  const auto data = [](Tensor& of) { return of.view().as<float>(); };
  const dispatch::EmulatedHalfWarp lanes;
  for (std::int64_t i = 0; i < heads; ++i) {
    const std::int64_t at = i * n;
    const float* const of_head = data(weight) + i % of_weight * n;
    EXPECT_EQ(
        detail::gated_norm_row<Rule>(lanes, data(x) + at, data(z) + at, of_head, data(y2) + at, 1e-5f, n),
        rstd.values()[static_cast<std::size_t>(i)]);
    detail::gated_norm_row_backward<Rule>(lanes, data(x) + at, data(z) + at, of_head, data(rstd)[i],
                                          data(dy) + at, data(dx2) + at, data(dz2) + at, n);
  }
  EXPECT_EQ(test::differing_bits(y2.values(), y.values()), 0u);
  EXPECT_EQ(test::differing_bits(dx2.values(), dx.values()), 0u);
  EXPECT_EQ(test::differing_bits(dz2.values(), dz.values()), 0u);
  const std::int64_t items = heads / of_weight;
  for (std::int64_t c = 0; c < columns; ++c) {
    float sum = 0;
    for (std::int64_t first = 0; first < items; first += 64) {
      const float part =
          detail::gated_norm_column<Rule>(data(x), data(z), data(rstd), data(dy), first,
                                          std::min<std::int64_t>(first + 64, items), c, columns, n);
      sum = first == 0 ? part : sum + part;
    }
    EXPECT_EQ(sum, dweight.values()[static_cast<std::size_t>(c)]);
  }
}

TEST(RecurrentDeviceTest, GatedNormsHaveTheBitsOfTheHost) {
  for (const std::int64_t of_weight : {1, 7}) {
    expect_gated_norms_of_host<detail::GateAfterNorm>(false, of_weight);
    expect_gated_norms_of_host<detail::GateBeforeNorm>(true, of_weight);
  }
}

}  // namespace
}  // namespace strata::kernels
