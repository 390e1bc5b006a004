#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using testing::HasSubstr;

std::string backward_of(const Program& program) {
  Program only = program;
  std::erase_if(only.code, [](const Instr& instr) { return !instr.backward; });
  return to_string(only);
}

TEST(AutodiffTest, BackwardRunsTheDerivativesInReverseOrder) {
  Builder b;
  const Value x = b.input("x", {4, 3}, DType::f32), targets = b.input("targets", {4}, DType::i32);
  b.region("r", false);
  const Value hidden = b.gelu(b.linear(x, b.param("w", {5, 3}, {}), b.param("b", {5}, {})));
  const Program program =
      must(derive_backward(must(b.finish({{"loss", b.cross_entropy(hidden, targets)}})), "loss"));
  EXPECT_EQ(backward_of(program),
            "0 cross_entropy_backward(r.gelu.y, r.cross_entropy.lse, targets, -) -> "
            "cross_entropy_backward.dlogits:[4, 5]\n"
            "1 gelu_backward(r.linear.y, cross_entropy_backward.dlogits) -> gelu_backward.dx:[4, 5]\n"
            "2 linear_backward_bias(gelu_backward.dx, b) -> d(b):[5] linear_backward_bias.workspace:[20]\n"
            // There is no gradient for x, which is an input.
            "3 linear_backward_weight(gelu_backward.dx, x, w) -> d(w):[5, 3]\n");
}

TEST(AutodiffTest, ContributionsToATiedWeightAreAddedInProgramOrderOfBackward) {
  const Program program = test::decoder_program(test::make_decoder_config(2, 8), 1);
  std::vector<std::pair<Op, bool>> writes;
  for (const Instr& instr : program.code)
    for (std::size_t k = 0; k < instr.out.size(); ++k)
      if (instr.out[k] == program.params[0].grad)
        writes.emplace_back(instr.op, (instr.accumulate >> k & 1u) != 0);
  EXPECT_EQ(writes, (std::vector<std::pair<Op, bool>>{{Op::linear_cross_entropy_backward, false},
                                                      {Op::embedding_backward, true}}));
}

// A micro-batch's gradient is rounded once: several contributions, or blocks of rows, are summed in f32.
TEST(AutodiffTest, AGradientHasTheDtypeOfComputeUnlessItIsASum) {
  Builder b(DType::bf16);
  const Value targets = b.input("targets", {4}, DType::i32);
  const Value twice = b.param("twice", {5, 5}, {}), once = b.param("once", {5, 5}, {});
  Value x = b.embedding(b.input("ids", {4}, DType::i32), b.param("table", {7, 5}, {}));
  x = b.linear(b.linear(b.linear(x, twice), twice), once);
  const Value head = b.param("head", {7, 5}, {});
  const Program program =
      must(derive_backward(must(b.finish({{"loss", b.linear_cross_entropy(x, head, targets)}})), "loss"));
  for (const ParamInfo& param : program.params)
    EXPECT_EQ(program.value(param.grad).dtype,
              param.name == "twice" || param.name == "head" ? DType::f32 : DType::bf16)
        << param.name;
}

TEST(AutodiffTest, TheBackwardOfTheLossReplacesItsForward) {
  const Program forward = test::decoder_program(test::make_decoder_config(1, 32), 2);
  int made = 0;
  for (const Instr& instr : forward.code)
    for (const ValueId id : instr.out) made += id == forward.find("loss") ? 1 : 0;
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(std::none_of(forward.code.begin(), forward.code.end(),
                           [](const Instr& instr) { return instr.op == Op::linear_cross_entropy; }));
}

TEST(AutodiffTest, AValueReadTwiceGetsTheSumOfBothGradients) {
  Builder b;
  const Value targets = b.input("targets", {4}, DType::i32);
  const Value x = b.linear(b.input("x", {4, 3}, DType::f32), b.param("w", {5, 3}, {}));
  const Program program = must(
      derive_backward(must(b.finish({{"loss", b.cross_entropy(b.add(x, b.gelu(x)), targets)}})), "loss"));
  EXPECT_THAT(backward_of(program),
              HasSubstr("2 add(cross_entropy_backward.dlogits, gelu_backward.dx) -> d(.linear.y):[4, 5]\n"
                        "3 linear_backward_weight(d(.linear.y), x, w)"));
}

// A layer's gradient depends on the sums of all layers, and is added to that of its choices in the dtype of
// what computed the logits.
TEST(AutodiffTest, LossesOfRoutersReachEveryLayerThroughTheirSums) {
  Builder b(DType::bf16);
  const Value targets = b.input("targets", {4}, DType::i32), factor = b.input("loss_factor", {1}, DType::f32);
  Value x = b.embedding(b.input("ids", {4}, DType::i32), b.param("table", {7, 5}, {})), sums;
  for (const std::string layer : {"0", "1"}) {
    const Value logits = b.linear_f32(x, b.param("router" + layer, {6, 5}, {}));
    const Routed routed = b.router_top_k(logits, 2, {});
    const RoutedRows rows = b.route_rows(routed, 6);
    sums = b.router_sums(logits, rows, sums);
    const Value in = b.expert_linear(b.gather_rows(x, rows, 2), b.param("in" + layer, {6, 8, 5}, {}), rows);
    const Value out = b.expert_gate(in, routed.weights, rows.source, {});
    x = b.sum_rows(b.expert_linear(out, b.param("out" + layer, {6, 5, 4}, {}), rows), rows, 2);
  }
  const Value loss = b.linear_cross_entropy(x, b.param("head", {7, 5}, {}), targets);
  const AddedLosses added = b.router_losses(sums, {.rows = 8, .aux_coef = 0.5f}, factor);
  const Program program = must(derive_backward(
      must(b.finish({{"loss", b.add(loss, added.zero)}, {"routers", added.losses}})), "loss"));
  std::vector<ValueId> slopes;
  for (const Instr& instr : program.code) {
    if (instr.op == Op::router_losses_backward) slopes.push_back(instr.out[0]);
    if (instr.op != Op::router_sums_backward) continue;
    slopes.push_back(instr.in[1]);
    EXPECT_EQ(program.value(instr.out[0]).dtype, DType::bf16);
  }
  EXPECT_EQ(slopes, std::vector<ValueId>(3, slopes.front()));
  EXPECT_THAT(backward_of(program),
              HasSubstr("add(router_sums_backward.dlogits, router_top_k_backward.dlogits)"));
}

// The gradient of the residual path is added in the norm's backward, without a pass over memory of its own.
TEST(AutodiffTest, TheResidualStreamsGradientIsAddedByTheNorms) {
  for (const char* family : {"gpt2", "llama", "glm4"}) {
    const Program program = test::decoder_program(test::make_realistic_config(family), 1);
    for (const Instr& instr : program.code)
      EXPECT_FALSE(instr.backward && instr.op == Op::add)
          << family << ": " << program.value(instr.out[0]).name;
  }
  Builder b;
  const Value targets = b.input("targets", {4}, DType::i32);
  const Value x = b.linear(b.input("x", {4, 3}, DType::f32), b.param("w", {5, 3}, {}));
  const Value y = b.add(x, b.rmsnorm(x, b.param("scale", {5}, {}), 1e-6f));
  const Program program =
      must(derive_backward(must(b.finish({{"loss", b.cross_entropy(y, targets)}})), "loss"));
  EXPECT_THAT(backward_of(program),
              HasSubstr("1 rmsnorm_backward(.linear.y, scale, .rmsnorm.rstd, cross_entropy_backward.dlogits, "
                        "cross_entropy_backward.dlogits) -> rmsnorm_backward.dx:[4, 5]"));
}

TEST(AutodiffTest, NoDerivativeIsEmittedForFrozenParametersAlone) {
  Builder b;
  const Value targets = b.input("targets", {4}, DType::i32);
  const Value x =
      b.gelu(b.linear(b.input("x", {4, 3}, DType::f32), b.param("frozen", {5, 3}, {.trainable = false})));
  const Value y = b.linear(x, b.param("trained", {5, 5}, {}), b.param("still", {5}, {.trainable = false}));
  const Program program =
      must(derive_backward(must(b.finish({{"loss", b.cross_entropy(y, targets)}})), "loss"));
  EXPECT_EQ(
      backward_of(program),
      "0 cross_entropy_backward(.linear.y, .cross_entropy.lse, targets, -) -> "
      "cross_entropy_backward.dlogits:[4, 5]\n"
      "1 linear_backward_weight(cross_entropy_backward.dlogits, .gelu.y, trained) -> d(trained):[5, 5]\n");
  EXPECT_EQ(program.params[0].grad, kNoValue);
}

// The head's GEMM and the loss are one op, forward and backward.
TEST(AutodiffTest, TheLossComputesOnlyTheGradientsThatAreNeeded) {
  const auto backward = [](bool table, bool head) {
    Builder b;
    const Value targets = b.input("targets", {4}, DType::i32);
    const Value x =
        b.embedding(b.input("ids", {4}, DType::i32), b.param("table", {7, 5}, {.trainable = table}));
    const Value loss = b.linear_cross_entropy(x, b.param("head", {9, 5}, {.trainable = head}), targets);
    const Program program = must(derive_backward(must(b.finish({{"loss", loss}})), "loss"));
    const auto at = std::find_if(program.code.begin(), program.code.end(), [](const Instr& instr) {
      return instr.op == Op::linear_cross_entropy_backward;
    });
    return std::vector<double>{static_cast<double>(program.value(at->out[0]).shape.n_elems()),
                               static_cast<double>(program.value(at->out[1]).shape.n_elems()),
                               flops(program, *at) / (2.0 * 4 * 9 * 5)};
  };
  EXPECT_EQ(backward(true, true), (std::vector<double>{20, 45, 3}));
  EXPECT_EQ(backward(true, false), (std::vector<double>{20, 0, 2}));
  EXPECT_EQ(backward(false, true), (std::vector<double>{0, 45, 2}));
}

// --- freezing parameters by name ---

Program of_names(std::initializer_list<const char*> names) {
  Builder b;
  Value x = b.input("x", {4, 5}, DType::f32);
  for (const char* name : names) x = b.linear(x, b.param(name, {5, 5}, {}));
  return must(b.finish({{"loss", b.cross_entropy(x, b.input("targets", {4}, DType::i32))}}));
}

std::string trained(const Program& program) {
  std::string names;
  for (const ParamInfo& param : program.params)
    if (param.trainable) names += param.name + " ";
  return names;
}

TEST(FreezeTest, APatternIsAGlobOverNames) {
  const Program program = of_names({"layers.0.in", "layers.1.in", "layers.1.out", "layers.10.in", "head"});
  const auto left = [&](const std::vector<std::string>& patterns) {
    return trained(must(freeze_parameters(program, patterns)));
  };
  EXPECT_EQ(left({}), "layers.0.in layers.1.in layers.1.out layers.10.in head ");
  EXPECT_EQ(left({"layers.1.*"}), "layers.0.in layers.10.in head ");
  EXPECT_EQ(left({"layers.1*"}), "layers.0.in head ");
  EXPECT_EQ(left({"layers.?.in", "head"}), "layers.1.out layers.10.in ");
  EXPECT_EQ(left({"layers.[01].in"}), "layers.1.out layers.10.in head ");
  EXPECT_EQ(left({"head", "head"}), "layers.0.in layers.1.in layers.1.out layers.10.in ");
}

TEST(FreezeTest, APatternThatMatchesNothingIsAnErrorThatShowsTheNearestNames) {
  const Program program = of_names({"layers.0.in", "layers.0.out", "layers.1.in", "head"});
  const std::vector<std::string> patterns = {"layer.0.in", "head", "haed"};
  const Status status = freeze_parameters(program, patterns).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_EQ(
      status.message(),
      "train.freeze: 'layer.0.in' matches none of 4 parameters; the nearest are layers.0.in, layers.1.in, "
      "layers.0.out\n"
      "train.freeze: 'haed' matches none of 4 parameters; the nearest are head, layers.0.in, layers.1.in");
}

TEST(FreezeTest, FreezingAllParametersIsRefused) {
  const std::vector<std::string> all = {"*"};
  EXPECT_EQ(freeze_parameters(of_names({"a", "b"}), all).status().message(),
            "train.freeze: all 2 parameters are frozen, and nothing is left to train");
}

TEST(AutodiffTest, WhatCannotBeTrainedIsRefusedByName) {
  Builder frozen;
  const Value targets = frozen.input("targets", {4}, DType::i32);
  const Value y =
      frozen.linear(frozen.input("x", {4, 3}, DType::f32), frozen.param("w", {5, 3}, {.trainable = false}));
  const Program program = must(frozen.finish({{"loss", frozen.cross_entropy(y, targets)}}));
  EXPECT_THAT(std::string(derive_backward(program, "loss").status().message()),
              HasSubstr("no trainable parameter"));
  EXPECT_THAT(std::string(derive_backward(program, "lost").status().message()),
              HasSubstr("no output named lost"));
  Builder unused;
  const Value t = unused.input("targets", {4}, DType::i32), x = unused.input("x", {4, 5}, DType::f32);
  unused.param("idle", {7}, {});
  const Value z = unused.linear(x, unused.param("w", {5, 5}, {}));
  EXPECT_THAT(std::string(derive_backward(must(unused.finish({{"loss", unused.cross_entropy(z, t)}})), "loss")
                              .status()
                              .message()),
              HasSubstr("parameter idle"));
  Builder direct;
  const Value d = direct.input("targets", {4}, DType::i32);
  const Value added = direct.add(direct.input("x", {4, 5}, DType::f32), direct.param("table", {4, 5}, {}));
  EXPECT_THAT(
      std::string(derive_backward(must(direct.finish({{"loss", direct.cross_entropy(added, d)}})), "loss")
                      .status()
                      .message()),
      HasSubstr("parameter table"));
}

TEST(AutodiffTest, RandomProgramsReachEveryTrainableParameterAndVerifyAlsoRecomputed) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const auto program = derive_backward(test::random_program(seed), "loss");
    ASSERT_TRUE(program.has_value()) << "seed " << seed << ": " << program.status().to_string();
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      const Status status = verify(recompute_regions(*program, recompute));
      ASSERT_TRUE(status.is_ok()) << "seed " << seed << ": " << status.to_string();
    }
  }
}

}  // namespace
}  // namespace strata
