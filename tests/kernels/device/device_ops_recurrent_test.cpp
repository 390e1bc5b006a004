// Compares the recurrent ops on the GPU with the host's (see device_ops_test.cpp).

#include <algorithm>

#include <gtest/gtest.h>

#include <strata/kernels/recurrent/causal_conv.h>
#include <strata/kernels/recurrent/delta_gates.h>
#include <strata/kernels/recurrent/delta_rule.h>
#include <strata/kernels/recurrent/gated_rmsnorm.h>
#include <strata/kernels/recurrent/scan_gates.h>
#include <strata/kernels/recurrent/state_scan.h>

#include "support/device_fixture.h"

namespace strata::kernels {
namespace {

class DeviceRecurrentTest : public test::DeviceFixture<DType> {
 protected:
  DType dtype() const override { return GetParam(); }

  /// Rows whose documents end at `end`.
  TensorView documents(std::int64_t rows, std::int32_t end) {
    std::vector<std::int32_t> starts(static_cast<std::size_t>(rows), 0);
    std::fill(starts.begin() + end, starts.end(), end);
    return integers(starts);
  }
  /// Log decays, below 0.
  TensorView decays(const Shape& shape) {
    const TensorView g = in(shape, 2, 1.0, DType::f32);
    for (std::int64_t i = 0; i < g.n_elems(); ++i) g.as<float>()[i] = 0.05f * (g.as<float>()[i] - 1.0f);
    return g;
  }
};

TEST_P(DeviceRecurrentTest, TheDeltaRuleHasTheBitsOfTheHost) {
  const DeltaHeads shapes[] = {{2, 4, 24, 40, 0}, {1, 2, 128, 128, 0}, {1, 1, 5, 17, 0}};
  for (DeltaHeads heads : shapes)
    for (const std::int32_t rows : {1, 200}) {
      heads.seq = rows;
      const Shape gates = {rows, heads.value_heads};
      const TensorView qkv = in({rows, heads.qkv_width()}, 1), g = decays(gates),
                       beta = in(gates, 3, 1.0, DType::f32),
                       docs = rows > 1 ? documents(rows, 130) : TensorView{};
      const DeltaRuleForwardArgs args = {
          .qkv = qkv,
          .g = g,
          .beta = beta,
          .doc_start = docs,
          .out = unwritten({rows, heads.out_width()}, GetParam()),
          .last = unwritten({1, heads.value_heads, heads.key_dim, heads.value_dim}, DType::f32),
          .heads = heads,
          .workspace = workspace(delta_rule_forward_workspace_bytes(rows, heads))};
      expect_same_bits<DeltaRuleForwardArgs>("delta_rule_forward", args, &delta_rule_forward_host,
                                             &delta_rule_forward_async,
                                             {&DeltaRuleForwardArgs::out, &DeltaRuleForwardArgs::last});
      expect_same_bits<DeltaRuleBackwardArgs>(
          "delta_rule_backward",
          {qkv, g, beta, docs, in({rows, heads.out_width()}, 4),
           unwritten({rows, heads.qkv_width()}, GetParam()), unwritten(gates, DType::f32),
           unwritten(gates, DType::f32), heads, workspace(delta_rule_backward_workspace_bytes(rows, heads))},
          &delta_rule_backward_host, &delta_rule_backward_async,
          {&DeltaRuleBackwardArgs::dqkv, &DeltaRuleBackwardArgs::dg, &DeltaRuleBackwardArgs::dbeta});
    }
}

TEST_P(DeviceRecurrentTest, CachedRowsHaveTheBitsOfTheHost) {
  const DeltaHeads heads = {2, 4, 24, 40, 0};
  constexpr std::int64_t rows = 70, channels = 37;
  std::vector<std::int32_t> counted;
  for (std::int32_t t = 0; t < rows; ++t) counted.push_back(t);
  const TensorView positions = integers(counted),
                   slots = integers(std::vector<std::int32_t>(static_cast<std::size_t>(rows), 1));
  expect_same_bits<CachedDeltaRuleArgs>(
      "cached_delta_rule",
      {in({rows, heads.qkv_width()}, 1), decays({rows, 4}), in({rows, 4}, 3, 1.0, DType::f32), positions,
       slots, in({2, 2, delta_state_elems(heads)}, 4, 1.0, DType::f32),
       unwritten({rows, heads.out_width()}, GetParam()), heads,
       workspace(cached_delta_rule_workspace_bytes(heads))},
      &cached_delta_rule_host, &cached_delta_rule_async, {&CachedDeltaRuleArgs::out});
  expect_same_bits<CachedCausalConvArgs>("cached_causal_conv",
                                         {in({rows, channels}, 5),
                                          in({channels, 4}, 6),
                                          {},
                                          positions,
                                          slots,
                                          in({2, 3, channels}, 7),
                                          unwritten({rows, channels}, GetParam()),
                                          true},
                                         &cached_causal_conv_host, &cached_causal_conv_async,
                                         {&CachedCausalConvArgs::y});
}

TEST_P(DeviceRecurrentTest, TheStateScanHasTheBitsOfTheHost) {
  const ScanHeads shapes[] = {{2, 12, 24, 20, 0}, {1, 8, 128, 64, 0}, {1, 1, 5, 17, 0}, {2, 4, 256, 64, 0}};
  for (ScanHeads heads : shapes)
    for (const std::int32_t rows : {1, 200}) {
      heads.seq = rows;
      const Shape gates = {rows, heads.heads};
      const TensorView xbc = in({rows, heads.xbc_width()}, 1), g = decays(gates),
                       step = in(gates, 3, 1.0, DType::f32), d = in({heads.heads}, 5, 1.0, DType::f32),
                       docs = rows > 1 ? documents(rows, 130) : TensorView{};
      const StateScanForwardArgs args = {
          .xbc = xbc,
          .step = step,
          .g = g,
          .d = d,
          .doc_start = docs,
          .out = unwritten({rows, heads.out_width()}, GetParam()),
          .last = unwritten({1, heads.heads, heads.state_dim, heads.head_dim}, DType::f32),
          .heads = heads,
          .workspace = workspace(state_scan_forward_workspace_bytes(rows, heads))};
      expect_same_bits<StateScanForwardArgs>("state_scan_forward", args, &state_scan_forward_host,
                                             &state_scan_forward_async,
                                             {&StateScanForwardArgs::out, &StateScanForwardArgs::last});
      expect_same_bits<StateScanBackwardArgs>(
          "state_scan_backward",
          {.xbc = xbc,
           .step = step,
           .g = g,
           .d = d,
           .doc_start = docs,
           .dout = in({rows, heads.out_width()}, 4),
           .dxbc = unwritten({rows, heads.xbc_width()}, GetParam()),
           .dstep = unwritten(gates, DType::f32),
           .dg = unwritten(gates, DType::f32),
           .dd = unwritten({heads.heads}, DType::f32),
           .heads = heads,
           .workspace = workspace(state_scan_backward_workspace_bytes(rows, heads))},
          &state_scan_backward_host, &state_scan_backward_async,
          {&StateScanBackwardArgs::dxbc, &StateScanBackwardArgs::dstep, &StateScanBackwardArgs::dg,
           &StateScanBackwardArgs::dd});
    }
}

TEST_P(DeviceRecurrentTest, CachedScansAndGatesOfScansHaveTheBitsOfTheHost) {
  const ScanHeads heads = {2, 12, 24, 20, 0};
  constexpr std::int64_t rows = 70, n = 12;
  std::vector<std::int32_t> counted;
  for (std::int32_t t = 0; t < rows; ++t) counted.push_back(t);
  const Shape gates = {rows, n};
  expect_same_bits<CachedStateScanArgs>(
      "cached_state_scan",
      {in({rows, heads.xbc_width()}, 1), in(gates, 3, 1.0, DType::f32), decays(gates),
       in({n}, 5, 1.0, DType::f32), integers(counted),
       integers(std::vector<std::int32_t>(static_cast<std::size_t>(rows), 1)),
       in({2, heads.blocks(), scan_state_elems(heads)}, 4, 1.0, DType::f32),
       unwritten({rows, heads.out_width()}, GetParam()), heads,
       workspace(cached_state_scan_workspace_bytes(heads))},
      &cached_state_scan_host, &cached_state_scan_async, {&CachedStateScanArgs::out});
  const StepLimits limits = {.low = 0.01f, .high = 2.0f};
  const TensorView dt = in(gates, 1, 8.0), a_log = in({n}, 2, 1.0, DType::f32),
                   dt_bias = in({n}, 3, 1.0, DType::f32);
  expect_same_bits<ScanGatesForwardArgs>(
      "scan_gates_forward",
      {dt, a_log, dt_bias, unwritten(gates, DType::f32), unwritten(gates, DType::f32), limits},
      &scan_gates_forward_host, &scan_gates_forward_async,
      {&ScanGatesForwardArgs::step, &ScanGatesForwardArgs::g});
  expect_same_bits<ScanGatesBackwardArgs>(
      "scan_gates_backward",
      {.dt = dt,
       .a_log = a_log,
       .dt_bias = dt_bias,
       .dstep = in(gates, 4, 1.0, DType::f32),
       .dg = in(gates, 5, 1.0, DType::f32),
       .ddt = unwritten(gates, GetParam()),
       .da_log = unwritten({n}, DType::f32),
       .ddt_bias = unwritten({n}, DType::f32),
       .limits = limits,
       .workspace = workspace(scan_gates_backward_workspace_bytes(rows, n))},
      &scan_gates_backward_host, &scan_gates_backward_async,
      {&ScanGatesBackwardArgs::ddt, &ScanGatesBackwardArgs::da_log, &ScanGatesBackwardArgs::ddt_bias});
}

TEST_P(DeviceRecurrentTest, ConvolutionsHaveTheBitsOfTheHost) {
  for (const std::int64_t rows : {1, 300, 4200}) {
    constexpr std::int64_t channels = 77, taps = 4;
    const TensorView x = in({rows, channels}, 1), weight = in({channels, taps}, 2), bias = in({channels}, 3),
                     docs = rows > 1 ? documents(rows, 130) : TensorView{};
    expect_same_bits<CausalConvForwardArgs>(
        "causal_conv_forward", {x, weight, bias, docs, unwritten({rows, channels}, GetParam()), rows, true},
        &causal_conv_forward_host, &causal_conv_forward_async, {&CausalConvForwardArgs::y});
    expect_same_bits<CausalConvBackwardArgs>(
        "causal_conv_backward",
        {.x = x,
         .weight = weight,
         .bias = bias,
         .doc_start = docs,
         .dy = in({rows, channels}, 4),
         .dx = unwritten({rows, channels}, GetParam()),
         .dweight = unwritten({channels, taps}, DType::f32),
         .dbias = unwritten({channels}, GetParam()),
         .seq = rows,
         .silu = true,
         .workspace = workspace(causal_conv_backward_workspace_bytes(rows, channels, taps))},
        &causal_conv_backward_host, &causal_conv_backward_async,
        {&CausalConvBackwardArgs::dx, &CausalConvBackwardArgs::dweight, &CausalConvBackwardArgs::dbias});
  }
}

TEST_P(DeviceRecurrentTest, GatesHaveTheBitsOfTheHost) {
  for (const std::int64_t rows : {1, 300, 4200}) {
    constexpr std::int64_t n = 6;
    const Shape gates = {rows, n};
    const TensorView ba = in({rows, 2 * n}, 1, 8.0), a_log = in({n}, 2, 1.0, DType::f32),
                     dt_bias = in({n}, 3, 1.0, DType::f32);
    expect_same_bits<DeltaGatesForwardArgs>(
        "delta_gates_forward",
        {ba, a_log, dt_bias, unwritten(gates, DType::f32), unwritten(gates, DType::f32)},
        &delta_gates_forward_host, &delta_gates_forward_async,
        {&DeltaGatesForwardArgs::g, &DeltaGatesForwardArgs::beta});
    expect_same_bits<DeltaGatesBackwardArgs>(
        "delta_gates_backward",
        {.ba = ba,
         .a_log = a_log,
         .dt_bias = dt_bias,
         .dg = in(gates, 4, 1.0, DType::f32),
         .dbeta = in(gates, 5, 1.0, DType::f32),
         .dba = unwritten({rows, 2 * n}, GetParam()),
         .da_log = unwritten({n}, DType::f32),
         .ddt_bias = unwritten({n}, DType::f32),
         .workspace = workspace(delta_gates_backward_workspace_bytes(rows, n))},
        &delta_gates_backward_host, &delta_gates_backward_async,
        {&DeltaGatesBackwardArgs::dba, &DeltaGatesBackwardArgs::da_log, &DeltaGatesBackwardArgs::ddt_bias});
  }
}

TEST_P(DeviceRecurrentTest, GatedNormsHaveTheBitsOfTheHost) {
  constexpr std::int64_t n = 6, head = 40, width = n * head;
  for (const std::int64_t rows : {1, 300, 4200})
    for (const bool is_of_mamba : {false, true}) {
      const std::int64_t of_weight = is_of_mamba ? width : head;
      const TensorView x = in({rows, width}, 6), z = in({rows, width}, 7, 4.0), weight = in({of_weight}, 8);
      const GatedRmsnormForwardArgs args = {
          x,     z,    weight,     unwritten({rows, width}, GetParam()), unwritten({rows * n}, DType::f32),
          1e-6f, head, is_of_mamba};
      expect_same_bits<GatedRmsnormForwardArgs>(
          "gated_rmsnorm_forward", args, &gated_rmsnorm_forward_host, &gated_rmsnorm_forward_async,
          {&GatedRmsnormForwardArgs::y, &GatedRmsnormForwardArgs::rstd});
      expect_same_bits<GatedRmsnormBackwardArgs>(
          "gated_rmsnorm_backward",
          {.x = x,
           .z = z,
           .weight = weight,
           .rstd = args.rstd,
           .dy = in({rows, width}, 9),
           .dx = unwritten({rows, width}, GetParam()),
           .dz = unwritten({rows, width}, GetParam()),
           .dweight = unwritten({of_weight}, GetParam()),
           .head_dim = head,
           .gate_first = is_of_mamba,
           .workspace = workspace(gated_rmsnorm_backward_workspace_bytes(rows * width, of_weight))},
          &gated_rmsnorm_backward_host, &gated_rmsnorm_backward_async,
          {&GatedRmsnormBackwardArgs::dx, &GatedRmsnormBackwardArgs::dz, &GatedRmsnormBackwardArgs::dweight});
    }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DeviceRecurrentTest, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace strata::kernels
