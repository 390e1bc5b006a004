// Compares the ops of experts on the GPU with the host's (see device_ops_test.cpp).

#include <gtest/gtest.h>

#include <strata/kernels/experts/biases.h>
#include <strata/kernels/experts/expert_linear.h>
#include <strata/kernels/experts/gate.h>
#include <strata/kernels/experts/router.h>
#include <strata/kernels/experts/router_losses.h>
#include <strata/kernels/experts/rows.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

class DeviceExpertsTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }

  TensorView choices(std::int64_t tokens, std::int64_t chosen, std::int64_t experts) {
    TensorView view = integers(test::Values(9).below(tokens * chosen, experts));
    view.shape = {tokens, chosen};
    return view;
  }
  /// Sorted rows, by the host.
  struct Routed {
    TensorView offsets, source, position;
  };
  Routed routed(const TensorView& of, std::int64_t experts) {
    const std::int64_t rows = of.n_elems();
    const Routed r = {unwritten({experts + 1}, DType::i32), unwritten({rows}, DType::i32),
                      unwritten({rows}, DType::i32)};
    route_rows_host({of, r.offsets, r.source, r.position}, *pool_);
    return r;
  }
};

TEST_P(DeviceExpertsTest, RoutersHaveTheBitsOfTheHost) {
  const RouterRule rules[] = {
      {}, {.renormalize = true, .scale = 2.5f}, {RouterRule::Score::sigmoid, true, 1e-20f, 2.5f, 8, 4}};
  for (const RouterRule& rule : rules)
    for (const std::int64_t experts : {64, 1024}) {
      constexpr std::int64_t tokens = 333, chosen = 6;
      const TensorView logits = in({tokens, experts}, 1, 4.0, DType::f32),
                       bias = in({experts}, 2, 0.3, DType::f32);
      const RouterTopKArgs args = {logits, bias, unwritten({tokens, chosen}, DType::i32),
                                   unwritten({tokens, chosen}, DType::f32), rule};
      expect_same_bits<RouterTopKArgs>("router_top_k", args, &router_top_k_host, &router_top_k_async,
                                       {&RouterTopKArgs::experts, &RouterTopKArgs::weights});
      expect_same_bits<RouterTopKBackwardArgs>(
          "router_top_k_backward",
          {logits, args.experts, in({tokens, chosen}, 3, 1.0, DType::f32),
           unwritten({tokens, experts}, GetParam()), rule},
          &router_top_k_backward_host, &router_top_k_backward_async, {&RouterTopKBackwardArgs::dlogits});
    }
}

TEST_P(DeviceExpertsTest, LossesOfRoutersHaveTheBitsOfTheHost) {
  for (const std::int64_t experts : {6, 64, 1024})
    for (const std::int64_t tokens : {1, 333, 5000}) {
      const std::int64_t sums = 2 * experts + 1;
      const TensorView logits = in({tokens, experts}, 1, 4.0, DType::f32),
                       offsets = routed(choices(tokens, 2, experts), experts).offsets,
                       before = in({sums}, 2, 1.0, DType::f32), factor = in({1}, 3, 1.0, DType::f32),
                       space = unwritten({static_cast<std::int64_t>(
                                             router_sums_workspace_bytes(tokens, experts) / sizeof(float))},
                                         DType::f32);
      const RouterSumsArgs args = {
          logits, offsets, before, unwritten({sums}, DType::f32), {space.data, space.bytes()}};
      expect_same_bits<RouterSumsArgs>("router_sums", args, &router_sums_host, &router_sums_async,
                                       {&RouterSumsArgs::sums});
      expect_same_bits<RouterLossesArgs>(
          "router_losses", {args.sums, unwritten({1}, DType::f32), unwritten({2}, DType::f32), tokens},
          &router_losses_host, &router_losses_async, {&RouterLossesArgs::zero, &RouterLossesArgs::losses});
      const RouterLossesBackwardArgs slopes = {args.sums, factor, unwritten({sums}, DType::f32),
                                               tokens,    0.5f,   0.25f};
      expect_same_bits<RouterLossesBackwardArgs>("router_losses_backward", slopes,
                                                 &router_losses_backward_host, &router_losses_backward_async,
                                                 {&RouterLossesBackwardArgs::dsums});
      expect_same_bits<RouterSumsBackwardArgs>(
          "router_sums_backward", {logits, slopes.dsums, unwritten({tokens, experts}, GetParam())},
          &router_sums_backward_host, &router_sums_backward_async, {&RouterSumsBackwardArgs::dlogits});
    }
}

TEST_P(DeviceExpertsTest, RowsHaveTheBitsOfTheHost) {
  for (const std::int64_t tokens : {1, 700, 5000})
    for (const std::int64_t h : {96, 131}) {
      constexpr std::int64_t chosen = 3, experts = 60;
      const std::int64_t rows = tokens * chosen;
      const TensorView of = choices(tokens, chosen, experts);
      expect_same_bits<RouteRowsArgs>(
          "route_rows",
          {of, unwritten({experts + 1}, DType::i32), unwritten({rows}, DType::i32),
           unwritten({rows}, DType::i32)},
          &route_rows_host, &route_rows_async,
          {&RouteRowsArgs::offsets, &RouteRowsArgs::source, &RouteRowsArgs::position});
      const Routed r = routed(of, experts);
      expect_same_bits<GatherRowsArgs>("gather_rows",
                                       {in({tokens, h}, 1), r.source, unwritten({rows, h}, GetParam())},
                                       &gather_rows_host, &gather_rows_async, {&GatherRowsArgs::rows});
      for (const TensorView& base : {in({tokens, h}, 2), TensorView{}})
        expect_same_bits<SumRowsArgs>(
            "sum_rows", {in({rows, h}, 3), r.position, base, unwritten({tokens, h}, GetParam())},
            &sum_rows_host, &sum_rows_async, {&SumRowsArgs::y});
    }
}

TEST_P(DeviceExpertsTest, GatesHaveTheBitsOfTheHost) {
  const ExpertGate gates[] = {{ExpertGate::Kind::silu},
                              {ExpertGate::Kind::gelu},
                              {ExpertGate::Kind::clamped, 2.0f, 1.702f},
                              {ExpertGate::Kind::relu2}};
  for (const ExpertGate& gate : gates)
    for (const std::int64_t f : {64, 75}) {
      constexpr std::int64_t tokens = 50, chosen = 2, rows = tokens * chosen;
      const TensorView gate_up = in({rows, gate.parts() * f}, 1, 4.0),
                       weights = in({tokens, chosen}, 2, 1.0, DType::f32),
                       source = routed(choices(tokens, chosen, 7), 7).source;
      expect_same_bits<ExpertGateForwardArgs>(
          "expert_gate_forward", {gate_up, weights, source, unwritten({rows, f}, GetParam()), gate},
          &expert_gate_forward_host, &expert_gate_forward_async, {&ExpertGateForwardArgs::a});
      expect_same_bits<ExpertGateBackwardArgs>(
          "expert_gate_backward",
          {gate_up, weights, source, in({rows, f}, 3), unwritten({rows, gate.parts() * f}, GetParam()),
           unwritten({tokens, chosen}, DType::f32), gate},
          &expert_gate_backward_host, &expert_gate_backward_async,
          {&ExpertGateBackwardArgs::dgate_up, &ExpertGateBackwardArgs::dweights});
    }
}

TEST_P(DeviceExpertsTest, BiasesHaveTheBitsOfTheHost) {
  constexpr std::int64_t tokens = 300, chosen = 2, experts = 7, h = 301;
  TensorView chosen_of = choices(tokens, chosen, experts);
  const Routed r = routed(chosen_of, experts);
  const TensorView b = in({experts, h}, 1), weights = in({tokens, chosen}, 2, 1.0, DType::f32),
                   dy = in({tokens, h}, 3);
  expect_same_bits<RouterBiasArgs>(
      "router_bias",
      {in({tokens, experts}, 4, 1.0, DType::f32), in({experts}, 5), unwritten({tokens, experts}, DType::f32)},
      &router_bias_host, &router_bias_async, {&RouterBiasArgs::sums});
  expect_same_bits<ExpertBiasForwardArgs>(
      "expert_bias_forward", {b, weights, chosen_of, unwritten({tokens, h}, GetParam())},
      &expert_bias_forward_host, &expert_bias_forward_async, {&ExpertBiasForwardArgs::y});
  expect_same_bits<ExpertBiasBackwardWeightsArgs>(
      "expert_bias_backward_weights", {dy, b, chosen_of, unwritten({tokens, chosen}, DType::f32)},
      &expert_bias_backward_weights_host, &expert_bias_backward_weights_async,
      {&ExpertBiasBackwardWeightsArgs::dweights});
  for (const bool adds : {false, true})
    expect_same_bits<ExpertBiasBackwardArgs>(
        "expert_bias_backward",
        {dy, weights, r.offsets, r.source, in({experts, h}, 6, 1.0, adds ? DType::f32 : GetParam()), adds},
        &expert_bias_backward_host, &expert_bias_backward_async, {&ExpertBiasBackwardArgs::dbias});
}

// Extents that tensor cores have, and others; all experts, and a block of them.
TEST_P(DeviceExpertsTest, LinearLayersAreCloseToTheHosts) {
  const double tolerance = GetParam() == DType::f32 ? 1e-5 : GetParam() == DType::f16 ? 2e-3 : 1e-2;
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{264, 200}, {135, 77}})
    for (const auto& [first, experts] : {std::pair<std::int64_t, std::int64_t>{0, 12}, {5, 4}}) {
      const Routed r = routed(choices(500, 3, 12), 12);
      constexpr std::int64_t rows = 1500;
      const ExpertShape shape = {rows, experts, n, k, GetParam()};
      const TensorView x = in({rows, k}, 1), dy = in({rows, n}, 2), w = in({experts, n, k}, 3),
                       b = in({experts, n}, 4), y = in({rows, n}, 5), dx = in({rows, k}, 6);
      expect_close<ExpertLinearForwardArgs>(
          "expert_linear",
          {x, w, b, r.offsets, y, first, workspace(expert_linear_forward_workspace_bytes(shape))},
          &expert_linear_forward_host, &expert_linear_forward_async, &ExpertLinearForwardArgs::y, tolerance);
      expect_close<ExpertLinearBackwardInputArgs>(
          "dx", {dy, w, r.offsets, dx, first, workspace(expert_linear_backward_input_workspace_bytes(shape))},
          &expert_linear_backward_input_host, &expert_linear_backward_input_async,
          &ExpertLinearBackwardInputArgs::dx, tolerance);
      for (const bool adds : {false, true}) {
        const DType gradient = adds ? DType::f32 : GetParam();
        expect_close<ExpertLinearBackwardWeightArgs>(
            "dw", {dy, x, r.offsets, in({experts, n, k}, 7, 1.0, gradient), first, adds},
            &expert_linear_backward_weight_host, &expert_linear_backward_weight_async,
            &ExpertLinearBackwardWeightArgs::dw, tolerance);
        expect_same_bits<ExpertLinearBackwardBiasArgs>(
            "db", {dy, r.offsets, in({experts, n}, 8, 1.0, gradient), first, adds},
            &expert_linear_backward_bias_host, &expert_linear_backward_bias_async,
            {&ExpertLinearBackwardBiasArgs::db});
      }
    }
}

INSTANTIATE_TEST_SUITE_P(DTypes, DeviceExpertsTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace strata::kernels
