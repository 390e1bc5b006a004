// The ops of Mamba-2 in programs: a layer, its derivative, and what does not fit.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/builder.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/kernels/recurrent/state_scan.h>
#include <strata/kernels/values/column_scales.h>

#include "graph/program_run.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::Values;
using testing::HasSubstr;

constexpr kernels::ScanHeads kScanHeads = {.groups = 1, .heads = 2, .state_dim = 3, .head_dim = 4, .seq = 70};
constexpr int kScanTokens = 70, kScanHidden = 6;

/// A layer whose output is a token's logits.
Program scan_layer(DType compute = DType::f32) {
  Builder b(compute);
  const Value targets = b.input("targets", {kScanTokens}, DType::i32),
              docs = b.input("doc_start", {kScanTokens}, DType::i32);
  const Value x =
      b.embedding(b.input("ids", {kScanTokens}, DType::i32), b.param("table", {11, kScanHidden}, {}));
  // Columns z | xBC | dt, each with a factor.
  const Value all =
      b.scale_parts(b.linear(x, b.param("in", {24, kScanHidden}, {})), {3, {8, 14, 2}, {0.7f, 1.5f, 2.0f}});
  const ColumnParts z_and_rest = b.divide_columns(all, {.first = 8, .second = 16});
  const ColumnParts parts = b.divide_columns(z_and_rest.second, {.first = 14, .second = 2});
  const Value xbc = b.causal_conv(parts.first, b.param("taps", {14, 4}, {}), b.param("conv_bias", {14}, {}),
                                  kScanHeads.seq, true, docs);
  const ScanGates gates =
      b.scan_gates(parts.second, b.param("a_log", {2}, {.is_f32 = true}),
                   b.param("dt_bias", {2}, {.is_f32 = true}), {.low = 1e-4f, .high = 100.0f});
  const Value o = b.state_scan(xbc, gates, b.param("d", {2}, {.is_f32 = true}), kScanHeads, docs);
  const Value y = b.gated_rmsnorm(o, z_and_rest.first, b.param("norm", {8}, {}), 0.01f, 4, true);
  const Value up =
      b.relu2(b.silu_gate(b.linear(y, b.param("up", {5, 8}, {})), b.linear(y, b.param("gate", {5, 8}, {}))));
  const Value logits = b.add(b.linear(y, b.param("out", {kScanHidden, 8}, {})),
                             b.linear(up, b.param("down", {kScanHidden, 5}, {})));
  return must(b.finish({{"loss", b.cross_entropy(logits, targets)}}));
}

/// A run with these values of parameters.
class ScanLayerRun {
 public:
  explicit ScanLayerRun(const Program& program) : run_(program) {
    std::uint64_t seed = 1;
    for (const ParamInfo& param : program.params)
      run_.set(param.name, Values(seed++).floats(param.shape.n_elems(), 0.7));
    run_.set("ids", Values(90).below(kScanTokens, 11));
    run_.set("targets", Values(91).below(kScanTokens, kScanHidden));
    std::vector<std::int32_t> docs(kScanTokens, 0);
    std::fill(docs.begin() + 67, docs.end(), 67);
    run_.set("doc_start", docs);
  }
  double loss() {
    run_.run();
    return static_cast<double>(run_.values("loss")[0]);
  }
  test::ProgramRun run_;
};

TEST(ScanOpsTest, TheDerivativeOfALayerIsTheSlopeOfItsLoss) {
  const Program forward = scan_layer(), program = must(derive_backward(forward, "loss"));
  ScanLayerRun whole(program);
  whole.loss();
  for (const ParamInfo& param : program.params) {
    const std::vector<float> gradient = whole.run_.gradient(param.name);
    const std::vector<float> direction = Values(7).floats(param.shape.n_elems());
    double want = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i)
      want += static_cast<double>(gradient[i]) * static_cast<double>(direction[i]);
    constexpr float kStep = 0.004f;
    const auto at = [&](float by) {
      ScanLayerRun moved(forward);
      std::vector<float> values = moved.run_.values(param.name);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += by * direction[i];
      moved.run_.set(param.name, values);
      return moved.loss();
    };
    // A difference of fourth order, whose error is that of losses in f32.
    const double slope = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
    EXPECT_NEAR(slope, want, 2e-4 * std::max(1.0, std::abs(want))) << param.name;
  }
}

TEST(ScanOpsTest, ALayerTrainsIn16Bits) {
  const Program program = must(derive_backward(scan_layer(DType::bf16), "loss"));
  ScanLayerRun run(program);
  EXPECT_GT(run.loss(), 0.0);
  for (const ParamInfo& param : program.params) {
    const bool is_f32 = param.name == "a_log" || param.name == "dt_bias" || param.name == "d";
    EXPECT_EQ(program.value(param.grad).dtype, is_f32 ? DType::f32 : DType::bf16) << param.name;
    double norm = 0;
    for (const float g : run.run_.gradient(param.name)) norm += std::abs(static_cast<double>(g));
    EXPECT_TRUE(std::isfinite(norm) && norm > 0) << param.name << " " << norm;
  }
}

TEST(ScanOpsTest, ARecomputedLayerHasTheSameGradients) {
  const Program program = must(derive_backward(scan_layer(), "loss"));
  ScanLayerRun stored(program), again(recompute_regions(program, Recompute::full));
  stored.loss();
  again.loss();
  for (const ParamInfo& param : program.params)
    EXPECT_EQ(test::differing_bits(stored.run_.gradient(param.name), again.run_.gradient(param.name)), 0u)
        << param.name;
}

TEST(ScanOpsTest, WhatDoesNotFitIsRefused) {
  kernels::ScanHeads heads = kScanHeads;
  heads.seq = 12;
  const auto message = [](const auto& record) {
    Builder b;
    record(b, b.input("x", {12, 14}, DType::f32), b.input("g", {12, 2}, DType::f32),
           b.input("i", {12}, DType::i32), b.param("d", {2}, {}));
    return std::string(b.finish({}).status().message());
  };
  EXPECT_EQ(message([&](Builder& b, Value x, Value g, Value i, Value d) {
              b.state_scan(x, {g, g}, d, heads, i);
            }),
            "ok");
  EXPECT_THAT(message([&](Builder& b, Value x, Value g, Value, Value d) {
                b.state_scan(x, {g, g}, d, kScanHeads);
              }),
              HasSubstr("needs xbc [batch * 70, 2 * 4 + 2 * 1 * 3]"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value g, Value, Value) {
                b.state_scan(x, {g, g}, b.param("e", {3}, {}), heads);
              }),
              HasSubstr("d [2] f32"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value, Value d) {
                b.state_scan(x, {x, x}, d, heads);
              }),
              HasSubstr("step and g [T, 2] f32"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value g, Value, Value d) {
                b.state_scan(x, {g, g}, d, heads, g);
              }),
              HasSubstr("doc_start [T] i32"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value g, Value i, Value d) {
                b.cached_state_scan(x, {g, g}, d, i, i, b.state("s", {2, 1, 5}, DType::f32), heads);
              }),
              HasSubstr("the state [sequences, 1, "));
  EXPECT_EQ(message([&](Builder& b, Value x, Value g, Value i, Value d) {
              b.cached_state_scan(x, {g, g}, d, i, i,
                                  b.state("s", {2, 1, kernels::scan_state_elems(heads)}, DType::f32), heads);
            }),
            "ok");
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value, Value d) { b.scan_gates(x, d, d, {}); }),
              HasSubstr("a_log [H] f32"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value, Value) {
                b.scale_parts(x, {2, {4, 9}, {1.0f, 2.0f}});
              }),
              HasSubstr("x [T, 13] of 1 to 8 parts, of which it has 2"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value, Value) {
                b.gated_rmsnorm(x, x, b.param("w", {2}, {}), 1e-6f, 7, true);
              }),
              HasSubstr("weight [n] or [heads n] of one dtype, n = 7"));
}

}  // namespace
}  // namespace strata
