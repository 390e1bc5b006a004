#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using kernels::SvdMethod;
using testing::ElementsAre;
using testing::HasSubstr;

// A layer whose adapters have two scales, and columns 4 and 5 without an adapter.
Result<Program> pissa_layer(std::optional<SvdMethod> pissa, bool dora = false) {
  Builder b(DType::bf16);
  const Value x = b.input("x", {5, 6}, DType::bf16), targets = b.input("targets", {5}, DType::i32);
  const Value y = b.linear(x, b.param("w.weight", {10, 6}, {.trainable = false}));
  const Value logits = b.linear(y, b.param("head", {7, 10}, {.trainable = false}));
  return add_lora(
      must(b.finish({{"loss", b.cross_entropy(logits, targets)}})),
      group_lora_modules(std::vector<LoraModule>{{"w.weight", {6, 4, 3}, 2.0f, dora, {}, pissa},
                                                 {"w.weight", {0, 3, 2}, 0.5f, dora, {}, pissa},
                                                 {"w.weight", {3, 1, 1}, 2.0f, dora, {}, pissa}}));
}
const ParamInfo& named_param(const Program& program, std::string_view name) {
  return *std::find_if(program.params.begin(), program.params.end(),
                       [&](const ParamInfo& param) { return param.name == name; });
}

TEST(AddPissaTest, AAndBAreTrainedAndWhatTheyStartAsIsHeldBesideThem) {
  const Program program = must(pissa_layer(SvdMethod::subspace));
  std::vector<std::string> names;
  for (const ParamInfo& param : program.params) {
    if (!param.name.starts_with("w.lora")) continue;
    names.push_back(param.name);
    const bool is_start = param.name.find('0') != std::string::npos;
    EXPECT_EQ(param.trainable, !is_start) << param.name;
    EXPECT_EQ(param.derived, is_start) << param.name;
  }
  EXPECT_THAT(names, ElementsAre("w.lora_A", "w.lora_B", "w.lora_A.1", "w.lora_B.1", "w.lora_A0", "w.lora_B0",
                                 "w.lora_A0.1", "w.lora_B0.1"));
  for (const auto& [trained, start, side] : {std::tuple{"w.lora_A", "w.lora_A0", PrincipalFactor::Side::a},
                                             {"w.lora_B", "w.lora_B0", PrincipalFactor::Side::b}})
    for (const char* const name : {trained, start}) {
      const ParamInfo& param = named_param(program, name);
      EXPECT_EQ(param.shape, named_param(program, trained).shape);
      EXPECT_EQ(param.init.principal.of, "w.weight");
      EXPECT_EQ(param.init.principal.side, side);
      EXPECT_EQ(param.init.principal.scale, 2.0f);
      EXPECT_EQ(param.init.principal.dtype, DType::bf16);
      EXPECT_EQ(param.init.principal.method, SvdMethod::subspace);
      EXPECT_EQ(param.init.principal.parts.part[0], (LoraPart{3, 1, 1}));
    }
}

// W is read by the layer alone.
TEST(AddPissaTest, TheStartIsSubtractedBeforeTheAdapterIsAdded) {
  const Program program = must(pissa_layer(SvdMethod::exact));
  std::vector<std::string> added;
  std::vector<float> scales;
  for (const Instr& instr : program.code) {
    if (instr.op == Op::lora_up) added.push_back(program.value(instr.in[2]).name);
    if (instr.op == Op::scale) scales.push_back(instr.attrs.as<ScaleAttrs>().factor);
  }
  EXPECT_THAT(added, ElementsAre("w.lora_B0", "w.lora_B", "w.lora_B0.1", "w.lora_B.1"));
  EXPECT_THAT(scales, ElementsAre(-2.0f, 2.0f, -0.5f, 0.5f));
  EXPECT_EQ(test::count(must(pissa_layer({})))[Op::lora_up], 2);
}

TEST(AddPissaTest, BackwardComputesNoGradientOfTheStart) {
  const Program program = must(derive_backward(must(pissa_layer(SvdMethod::exact)), "loss"));
  EXPECT_EQ(test::count(program)[Op::lora_up_backward_weight], 2);
  EXPECT_EQ(named_param(program, "w.lora_A0").grad, kNoValue);
  EXPECT_EQ(named_param(program, "w.lora_B0").grad, kNoValue);
  EXPECT_NE(named_param(program, "w.lora_A").grad, kNoValue);
}

TEST(AddPissaTest, DoraIsRefused) {
  const Status status = pissa_layer(SvdMethod::exact, true).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("w.weight: DoRA and PiSSA cannot be combined"));
}

}  // namespace
}  // namespace strata
