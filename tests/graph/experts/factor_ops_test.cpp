// Factors of chosen experts and of whole tensors, and columns that are used twice.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/builder.h>
#include <strata/graph/op_list.h>
#include <strata/graph/passes.h>
#include <strata/kernels/mixers/divided_columns.h>
#include <strata/kernels/values/expert_rules.h>

#include "graph/program_run.h"
#include "support/numeric.h"

namespace strata {
namespace {

using test::Values;
using testing::HasSubstr;

constexpr int kFactorTokens = 90, kFactorExperts = 3, kFactorChosen = 2, kFactorHidden = 6;

/// Logits are the weights of a token's experts, of one column each.
Program factors(DType compute = DType::f32) {
  Builder b(compute);
  const Value x =
      b.embedding(b.input("ids", {kFactorTokens}, DType::i32), b.param("table", {11, kFactorHidden}, {}));
  const Routed routed =
      b.router_top_k(b.linear_f32(x, b.param("router", {kFactorExperts, kFactorHidden}, {})), kFactorChosen,
                     {.renormalize = true});
  const Value by = b.param("by", {1}, {.is_f32_state = true}),
              scale = b.param("factors", {kFactorExperts}, {.is_f32 = true});
  const Value weights = b.expert_scale(routed, b.route_rows(routed, kFactorExperts), scale);
  const Value loss =
      b.cross_entropy(b.scale_by(weights, by), b.input("targets", {kFactorTokens}, DType::i32));
  return must(b.finish(
      {{"weights", weights}, {"chosen", routed.weights}, {"experts", routed.experts}, {"loss", loss}}));
}

class FactorRun {
 public:
  explicit FactorRun(const Program& program) : run_(program) {
    std::uint64_t seed = 1;
    for (const ParamInfo& param : program.params)
      run_.set(param.name, Values(seed++).floats(param.shape.n_elems(), 0.7));
    run_.set("by", std::vector<float>{1.75f});
    run_.set("ids", Values(90).below(kFactorTokens, 11));
    run_.set("targets", Values(91).below(kFactorTokens, kFactorChosen));
  }
  double loss() {
    run_.run();
    return static_cast<double>(run_.values("loss")[0]);
  }
  test::ProgramRun run_;
};

TEST(FactorOpsTest, EachWeightHasTheFactorOfItsExpert) {
  FactorRun factor_run(factors());
  factor_run.loss();
  const std::vector<float> scaled = factor_run.run_.values("weights"),
                           plain = factor_run.run_.values("chosen"),
                           factor = factor_run.run_.values("factors");
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const bool is_any = scaled[i] == plain[i] * factor[0] || scaled[i] == plain[i] * factor[1] ||
                        scaled[i] == plain[i] * factor[2];
    EXPECT_TRUE(is_any) << i;
    EXPECT_NE(scaled[i], plain[i]) << i;
  }
}

TEST(FactorOpsTest, DerivativesAreTheSlopesOfTheLoss) {
  const Program forward = factors(), program = must(derive_backward(forward, "loss"));
  FactorRun whole(program);
  whole.loss();
  for (const ParamInfo& param : program.params) {
    if (!param.trainable) continue;
    const std::vector<float> gradient = whole.run_.gradient(param.name);
    double want = 0;  // along the gradient, its length
    for (const float g : gradient) want += static_cast<double>(g) * static_cast<double>(g);
    want = std::sqrt(want);
    std::vector<float> direction = gradient;
    for (float& d : direction) d /= static_cast<float>(want);
    constexpr float kStep = 0.004f;
    const auto at = [&](float by) {
      FactorRun moved(forward);
      std::vector<float> values = moved.run_.values(param.name);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += by * direction[i];
      moved.run_.set(param.name, values);
      return moved.loss();
    };
    const double slope = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
    EXPECT_NEAR(slope, want, 3e-4 * std::max(0.1, std::abs(want))) << param.name;
    EXPECT_GT(want, 1e-3) << param.name;
  }
}

TEST(FactorOpsTest, ColumnsThatAreUsedTwiceGetBothGradients) {
  Builder b;
  const Value x = b.linear(b.input("x", {5, 3}, DType::f32), b.param("w", {4, 3}, {}));
  const ColumnParts parts = b.divide_columns(x, {.groups = 1, .first = 1, .second = 3});
  const Value both = b.unite_columns({parts.second, parts.second}, {.groups = 1, .first = 3, .second = 3});
  const Value all = b.unite_columns({parts.first, both}, {.groups = 1, .first = 1, .second = 6});
  const Value loss = b.cross_entropy(all, b.input("targets", {5}, DType::i32));
  const Program program = must(derive_backward(must(b.finish({{"loss", loss}, {"all", all}})), "loss"));
  test::ProgramRun run(program);
  run.set("x", Values(1).floats(15));
  run.set("w", Values(2).floats(12));
  run.set("targets", std::vector<std::int32_t>(5, 2));
  run.run();
  const std::vector<float> united = run.values("all");
  for (std::size_t row = 0; row < 5; ++row)
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(united[row * 7 + i], united[row * 7 + i + 3]);

  EXPECT_THAT(to_string(program), HasSubstr("unite_columns"));
  double norm = 0;
  for (const float g : run.gradient("w")) norm += std::abs(static_cast<double>(g));
  EXPECT_GT(norm, 0);
}

TEST(FactorOpsTest, WhatDoesNotFitIsRefused) {
  const auto message = [](const auto& record) {
    Builder b(DType::bf16);
    record(b, b.input("x", {4, 6}, DType::bf16));
    return std::string(b.finish({}).status().message());
  };
  EXPECT_THAT(message([](Builder& b, Value x) { b.scale_by(x, b.param("p", {2}, {.is_f32 = true})); }),
              HasSubstr("x [T, h], factor [1] f32"));
  EXPECT_THAT(message([](Builder& b, Value x) { b.scale_by(x, b.param("p", {1}, {})); }),
              HasSubstr("factor [1]"));
  EXPECT_THAT(message([](Builder& b, Value) {
                const Routed routed = b.router_top_k(b.input("l", {4, 3}, DType::f32), 2, {});
                b.expert_scale(routed, b.route_rows(routed, 3), b.param("p", {4}, {.is_f32 = true}));
              }),
              HasSubstr("factors [E] f32"));
  EXPECT_THAT(message([](Builder& b, Value x) {
                const Value w = b.param("w", {6}, {});
                b.qk_norm(x, b.param("q", {2}, {}), w, {1, 1}, 1e-6f, 0, true);
              }),
              HasSubstr("weights [d] and [d]"));
}

}  // namespace
}  // namespace strata
