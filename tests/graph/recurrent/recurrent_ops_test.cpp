// The recurrent ops in programs: a layer of gated delta nets, its derivative, and its rows with states.
#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/builder.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/kernels/recurrent/delta_rule.h>

#include "graph/program_run.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::Values;
using testing::HasSubstr;

constexpr kernels::DeltaHeads kHeads = {
    .key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 4, .seq = 70};
constexpr int kTokens = 70, kHidden = 6;

/// A layer whose output is a token's logits.
Program layer(DType compute = DType::f32) {
  Builder b(compute);
  const Value targets = b.input("targets", {kTokens}, DType::i32),
              docs = b.input("doc_start", {kTokens}, DType::i32);
  const Value x = b.embedding(b.input("ids", {kTokens}, DType::i32), b.param("table", {11, kHidden}, {}));
  const Value qkv = b.causal_conv(b.linear(x, b.param("in", {14, kHidden}, {})), b.param("taps", {14, 4}, {}),
                                  b.param("conv_bias", {14}, {}), kHeads.seq, true, docs);
  const DeltaGates gates =
      b.delta_gates(b.linear(x, b.param("ba", {4, kHidden}, {})), b.param("a_log", {2}, {.is_f32 = true}),
                    b.param("dt_bias", {2}, {.is_f32 = true}));
  const Value o = b.delta_rule(qkv, gates, kHeads, docs);
  const Value y =
      b.gated_rmsnorm(o, b.linear(x, b.param("z", {8, kHidden}, {})), b.param("norm", {4}, {}), 0.01f);
  const Value logits = b.linear(y, b.param("out", {kHidden, 8}, {}));
  return must(b.finish({{"loss", b.cross_entropy(logits, targets)}}));
}

/// A run with these values of parameters.
class LayerRun {
 public:
  explicit LayerRun(const Program& program) : run_(program) {
    std::uint64_t seed = 1;
    for (const ParamInfo& param : program.params)
      run_.set(param.name, Values(seed++).floats(param.shape.n_elems(), 0.7));
    run_.set("ids", Values(90).below(kTokens, 11));
    run_.set("targets", Values(91).below(kTokens, kHidden));
    std::vector<std::int32_t> docs(kTokens, 0);
    std::fill(docs.begin() + 67, docs.end(), 67);
    run_.set("doc_start", docs);
  }
  double loss() {
    run_.run();
    return static_cast<double>(run_.values("loss")[0]);
  }
  test::ProgramRun run_;
};

TEST(RecurrentOpsTest, TheDerivativeOfALayerIsTheSlopeOfItsLoss) {
  const Program forward = layer(), program = must(derive_backward(forward, "loss"));
  LayerRun whole(program);
  whole.loss();
  for (const ParamInfo& param : program.params) {
    const std::vector<float> gradient = whole.run_.gradient(param.name);
    const std::vector<float> direction = Values(7).floats(param.shape.n_elems());
    double want = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i)
      want += static_cast<double>(gradient[i]) * static_cast<double>(direction[i]);
    constexpr float kStep = 0.004f;
    const auto at = [&](float by) {
      LayerRun moved(forward);
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

TEST(RecurrentOpsTest, RatesOfDecayAndTheirGradientsAreF32InA16BitProgram) {
  const Program program = must(derive_backward(layer(DType::bf16), "loss"));
  for (const ParamInfo& param : program.params) {
    const bool is_f32 = param.name == "a_log" || param.name == "dt_bias";
    EXPECT_EQ(program.value(param.value).dtype, is_f32 ? DType::f32 : DType::bf16) << param.name;
    EXPECT_EQ(program.value(param.grad).dtype, is_f32 ? DType::f32 : DType::bf16) << param.name;
    EXPECT_TRUE(param.trainable);
  }
  LayerRun run(program);
  EXPECT_GT(run.loss(), 0.0);
  for (const ParamInfo& param : program.params) {
    double norm = 0;
    for (const float g : run.run_.gradient(param.name)) norm += std::abs(static_cast<double>(g));
    EXPECT_TRUE(std::isfinite(norm) && norm > 0) << param.name << " " << norm;
  }
}

TEST(RecurrentOpsTest, ARecomputedLayerHasTheSameGradients) {
  const Program program = must(derive_backward(layer(), "loss"));
  LayerRun stored(program), again(recompute_regions(program, Recompute::full));
  stored.loss();
  again.loss();
  for (const ParamInfo& param : program.params)
    EXPECT_EQ(test::differing_bits(stored.run_.gradient(param.name), again.run_.gradient(param.name)), 0u)
        << param.name;
}

TEST(RecurrentOpsTest, AGateThatIsNotReadHasNoGradient) {
  Builder b;
  const Value ba = b.linear(b.input("x", {3, 2}, DType::f32), b.param("w", {4, 2}, {}));
  const DeltaGates gates = b.delta_gates(ba, b.param("a_log", {2}, {}), b.param("dt_bias", {2}, {}));
  const Value loss = b.cross_entropy(gates.g, b.input("targets", {3}, DType::i32));
  const Program program = must(derive_backward(must(b.finish({{"loss", loss}})), "loss"));
  EXPECT_THAT(to_string(program), HasSubstr("delta_gates_backward(.linear.y, a_log, dt_bias, "
                                            "cross_entropy_backward.dlogits, -)"));
}

TEST(RecurrentOpsTest, WhatDoesNotFitIsRefused) {
  const auto message = [](const auto& record) {
    Builder b;
    record(b, b.input("x", {12, 14}, DType::f32), b.input("g", {12, 2}, DType::f32),
           b.input("i", {12}, DType::i32));
    return std::string(b.finish({}).status().message());
  };
  kernels::DeltaHeads heads = kHeads;
  heads.seq = 12;
  EXPECT_EQ(message([&](Builder& b, Value x, Value g, Value i) { b.delta_rule(x, {g, g}, heads, i); }), "ok");
  EXPECT_THAT(message([&](Builder& b, Value x, Value g, Value) {
                b.delta_rule(x, {g, g}, kHeads);
              }),
              HasSubstr("needs qkv [batch * 70, 2 * 1 * 3 + 2 * 4]"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value) {
                b.delta_rule(x, {x, x}, heads);
              }),
              HasSubstr("g and beta [T, 2] f32"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value g, Value) {
                b.delta_rule(x, {g, g}, heads, g);
              }),
              HasSubstr("doc_start [T] i32"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value g, Value i) {
                b.cached_delta_rule(x, {g, g}, i, i, b.state("s", {2, 1, 5}, DType::f32), heads);
              }),
              HasSubstr("the state [sequences, 1, "));
  EXPECT_EQ(message([&](Builder& b, Value x, Value g, Value i) {
              b.cached_delta_rule(x, {g, g}, i, i,
                                  b.state("s", {2, 1, kernels::delta_state_elems(heads)}, DType::f32), heads);
            }),
            "ok");
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value) {
                b.causal_conv(x, b.param("w", {14, 9}, {}), {}, 12, true);
              }),
              HasSubstr("weight [C, 2 to 8 taps]"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value) {
                b.causal_conv(x, b.param("w", {14, 4}, {}), {}, 5, true);
              }),
              HasSubstr("x [batch * 5, C]"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value i) {
                b.cached_causal_conv(x, b.param("w", {14, 4}, {}), {}, i, i, b.state("s", {2, 4, 14}), true);
              }),
              HasSubstr("the state [sequences, taps - 1, C]"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value) {
                b.delta_gates(x, b.param("a", {6}, {}), b.param("d", {7}, {}));
              }),
              HasSubstr("a_log [H] f32"));
  EXPECT_THAT(message([&](Builder& b, Value x, Value, Value) {
                b.gated_rmsnorm(x, x, b.param("w", {5}, {}), 1e-6f);
              }),
              HasSubstr("weight [n]"));
}

}  // namespace
}  // namespace strata
