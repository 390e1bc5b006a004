#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/model/adapter/weight_parts.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A layer with a bias whose adapters have two scales, and columns 4 and 5 without an adapter.
Program adapted_layer(DType compute, bool dora, bool train_bias = false) {
  Builder b(compute);
  const Value x = b.input("x", {5, 6}, compute), targets = b.input("targets", {5}, DType::i32);
  const Value y = b.linear(x, b.param("w.weight", {10, 6}, {.trainable = false}),
                           b.param("w.bias", {10}, {.trainable = train_bias}));
  const Value logits = b.linear(y, b.param("head", {7, 10}, {.trainable = false}));
  Program program = must(b.finish({{"loss", b.cross_entropy(logits, targets)}}));
  return must(add_lora(std::move(program),
                       group_lora_modules(std::vector<LoraModule>{{"w.weight", {6, 4, 3}, 2.0f, dora},
                                                                  {"w.weight", {0, 3, 2}, 0.5f, dora},
                                                                  {"w.weight", {3, 1, 1}, 2.0f, dora}})));
}
const ParamInfo& param_of(const Program& program, std::string_view name) {
  return *std::find_if(program.params.begin(), program.params.end(),
                       [&](const ParamInfo& param) { return param.name == name; });
}

TEST(AddDoraTest, TheBiasIsAddedOnceAndBehindTheScaledColumns) {
  const Program program = adapted_layer(DType::f32, true);
  std::vector<ValueId> biases;
  for (const Instr& instr : program.code) {
    EXPECT_TRUE(instr.op != Op::linear || instr.in[2] == kNoValue);
    if (instr.op == Op::scale_columns) biases.push_back(instr.in[3]);
  }
  EXPECT_THAT(biases, ElementsAre(kNoValue, param_of(program, "w.bias").value));
  EXPECT_EQ(test::count(program)[Op::dora_norm], 2);
  EXPECT_FALSE(has_op(adapted_layer(DType::f32, false), Op::scale_columns));
}

TEST(AddDoraTest, MagnitudesAreTheLastParametersAndStartAsTheNormsOfTheirRows) {
  const Program program = adapted_layer(DType::bf16, true);
  std::vector<std::string> names;
  for (const ParamInfo& param : program.params)
    if (param.name.starts_with("w.lora")) names.push_back(param.name);
  EXPECT_THAT(names, ElementsAre("w.lora_A", "w.lora_B", "w.lora_A.1", "w.lora_B.1", "w.lora_magnitude",
                                 "w.lora_magnitude.1"));
  const ParamInfo& magnitude = param_of(program, "w.lora_magnitude");
  EXPECT_EQ(magnitude.shape, Shape({5}));
  EXPECT_EQ(program.value(magnitude.value).dtype, DType::f32);
  EXPECT_EQ(magnitude.init.norms.of, "w.weight");
  EXPECT_EQ(magnitude.init.norms.dtype, DType::bf16);
  ASSERT_EQ(magnitude.init.norms.parts.n, 2);
  EXPECT_EQ(magnitude.init.norms.parts.part[0], (LoraPart{3, 1, 1}));
}

// The norm reads A and B, but contributes nothing to their gradients, which stay in their dtype.
TEST(AddDoraTest, TheNormIsAConstantInBackward) {
  for (const bool train_bias : {false, true}) {
    const Program program = must(derive_backward(adapted_layer(DType::bf16, true, train_bias), "loss"));
    for (const Instr& instr : program.code) EXPECT_FALSE(instr.backward && instr.op == Op::dora_norm);
    EXPECT_EQ(program.value(param_of(program, "w.lora_A").grad).dtype, DType::bf16);
    EXPECT_EQ(program.value(param_of(program, "w.lora_B").grad).dtype, DType::bf16);
    EXPECT_EQ(program.value(param_of(program, "w.lora_magnitude").grad).dtype, DType::f32);
    EXPECT_EQ(test::count(program)[Op::scale_columns_backward_weight], 2);
    EXPECT_EQ(test::count(program)[Op::linear_backward_bias], train_bias ? 1 : 0);
  }
}

TEST(AddDoraTest, TheNormOfAQuantizedMatrixReadsItsBytes) {
  const WeightParts weights[] = {{"w.weight", {4, 6}}};
  const Program program =
      must(quantize_weights(adapted_layer(DType::bf16, true), kernels::WeightFormat::nf4, weights));
  for (const Instr& instr : program.code) {
    if (instr.op != Op::dora_norm) continue;
    EXPECT_EQ(instr.attrs.as<DoraNormAttrs>().matrix.format, kernels::WeightFormat::nf4);
    EXPECT_EQ(program.value(instr.in[0]).dtype, DType::u8);
    EXPECT_EQ(program.value(instr.out[1]).shape.dim(0) % 256, 0) << "its workspace has a panel";
  }
  EXPECT_TRUE(verify(program).is_ok());
}

TEST(AddDoraTest, TheWorkIsThatOfTheProductWithA) {
  const Program program = adapted_layer(DType::f32, true);
  for (const Instr& instr : program.code) {
    if (instr.op == Op::dora_norm && instr.attrs.as<DoraNormAttrs>().parts.n == 2) {
      EXPECT_EQ(flops(program, instr), 2.0 * 6 * (4 * (3 + 1) + 1 * (1 + 1)));
    }
  }
}

TEST(AddDoraTest, ShapesThatDoNotMatchAreRefused) {
  const LoraAttrs parts = {{{{0, 4, 2}}}, 1}, beyond = {{{{2, 4, 2}}}, 1}, none = {};
  const auto message = [](auto&& record) {
    Builder b;
    const Value w = b.param("w", {5, 6}, {}), a = b.param("a", {2, 6}, {}), u = b.param("b", {8}, {}),
                x = b.input("x", {3, 5}, DType::f32), m = b.param("m", {4}, {});
    record(b, w, a, u, x, m);
    return std::string(b.finish({}).status().message());
  };
  EXPECT_EQ(message([&](Builder& b, Value w, Value a, Value u, Value x, Value m) {
              b.scale_columns(x, m, b.dora_norm(w, a, u, parts, 1), {}, parts);
            }),
            "ok");
  for (const LoraAttrs& wrong : {beyond, none}) {
    EXPECT_THAT(
        message([&](Builder& b, Value w, Value a, Value u, Value, Value) { b.dora_norm(w, a, u, wrong, 1); }),
        HasSubstr("dora_norm: needs a matrix of the inner extent 6"));
    EXPECT_THAT(message([&](Builder& b, Value, Value, Value, Value x, Value m) {
                  b.scale_columns(x, m, m, {}, wrong);
                }),
                HasSubstr("scale_columns: needs x [T, N], m and norm f32"));
  }
  EXPECT_THAT(
      message([&](Builder& b, Value w, Value, Value u, Value x, Value) { b.dora_norm(w, x, u, parts, 1); }),
      HasSubstr("a [2, 5]"));
  EXPECT_THAT(message([&](Builder& b, Value, Value, Value u, Value x, Value m) {
                b.scale_columns(x, m, m, u, parts);
              }),
              HasSubstr("bias [N]"));
}

}  // namespace
}  // namespace strata
