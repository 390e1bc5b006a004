#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/builder.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/subspace_passes.h>
#include <strata/model/decoder.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Two layers, the first with a basis on each side: of its first 8 rows on the right, of the others on the
// left.
Program two_layers(DType compute = DType::f32) {
  Builder b(compute);
  const Value x = b.input("x", {5, 6}, compute), targets = b.input("targets", {5}, DType::i32);
  const Value h = b.linear(x, b.param("w.weight", {12, 6}, {}), b.param("w.bias", {12}, {}));
  const Value y = b.linear(b.gelu(h), b.param("v.weight", {7, 12}, {}));
  return must(b.finish({{"loss", b.cross_entropy(y, targets)}}));
}
std::vector<LoraGroup> two_layers_groups() {
  return group_lora_modules(
      std::vector<LoraModule>{{.weight = "w.weight", .part = {0, 8, 2}, .trained = LoraTrained::b},
                              {.weight = "w.weight", .part = {8, 4, 3}, .trained = LoraTrained::a},
                              {.weight = "v.weight", .part = {0, 7, 1}, .trained = LoraTrained::a}});
}
const ParamInfo& found_param(const Program& program, std::string_view name) {
  const auto found = std::find_if(program.params.begin(), program.params.end(),
                                  [&](const ParamInfo& param) { return param.name == name; });
  if (found == program.params.end()) throw std::runtime_error(std::string(name));
  return *found;
}
Program trained(std::int32_t micro_batches = 1, DType compute = DType::f32) {
  const Program program =
      must(derive_backward(must(add_lora(two_layers(compute), two_layers_groups())), "loss"));
  return interleave_micro_batches(program, micro_batches);
}
Program with_matrix_gradients(std::int32_t micro_batches = 1) {
  const Program program =
      must(derive_backward(must(train_only_matrices(two_layers(), two_layers_groups())), "loss"));
  return interleave_micro_batches(program, micro_batches);
}
std::string refusal(const Result<Program>& result) {
  EXPECT_EQ(result.status().code(), Code::invalid);
  return std::string(result.status().message());
}

TEST(SubspaceGroupsTest, ModulesShareAGroupOnlyIfTheyTrainTheSameFactors) {
  const std::vector<LoraGroup> groups = two_layers_groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].basis(), "w.lora_A");
  EXPECT_EQ(groups[0].factor(), "w.lora_B");
  EXPECT_EQ(groups[0].outside, "w.lora_outside");
  EXPECT_EQ(groups[1].basis(), "w.lora_B.1");
  EXPECT_EQ(groups[1].factor(), "w.lora_A.1");
  EXPECT_EQ(groups[1].outside, "w.lora_outside.1");
  const auto both = group_lora_modules(std::vector<LoraModule>{{"w.weight", {0, 8, 2}, 1}});
  EXPECT_FALSE(both[0].has_basis());
  EXPECT_EQ(both[0].outside, "");
}

TEST(SubspaceGroupsTest, BothFactorsStartWithZerosAndOnlyOneIsTrained) {
  const Program program = must(add_lora(two_layers(DType::bf16), two_layers_groups()));
  for (const LoraGroup& group : two_layers_groups()) {
    for (const std::string& name : {group.a, group.b}) {
      const ParamInfo& param = found_param(program, name);
      EXPECT_EQ(param.init.std, 0) << name;
      EXPECT_EQ(param.init.mean, 0) << name;
      EXPECT_FALSE(param.decay) << name;
      EXPECT_EQ(program.value(param.value).dtype, DType::bf16) << name;
    }
    EXPECT_FALSE(found_param(program, group.basis()).trainable);
    EXPECT_TRUE(found_param(program, group.factor()).trainable);
    EXPECT_TRUE(found_param(program, group.weight).trainable) << "what was trainable stays so";
  }
  auto dora = group_lora_modules(std::vector<LoraModule>{
      {.weight = "w.weight", .part = {0, 8, 2}, .dora = true, .trained = LoraTrained::b}});
  EXPECT_THAT(refusal(add_lora(two_layers(), dora)), HasSubstr("w.weight: DoRA trains both factors"));
}

TEST(FreezeMatricesTest, MatricesAreFrozenOrAreAllThatIsTrained) {
  const auto trainable = [](const Program& program) {
    std::vector<std::string> names;
    for (const ParamInfo& param : program.params)
      if (param.trainable) names.push_back(param.name);
    return names;
  };
  const Program adapted = must(add_lora(two_layers(), two_layers_groups()));
  EXPECT_THAT(trainable(must(freeze_matrices(adapted, two_layers_groups()))),
              ElementsAre("w.bias", "w.lora_B", "w.lora_A.1", "v.lora_A"));
  EXPECT_THAT(trainable(must(train_only_matrices(adapted, two_layers_groups()))),
              ElementsAre("w.weight", "v.weight"));
  std::vector<LoraGroup> unknown = two_layers_groups();
  unknown[0].weight = "a.weight";
  unknown[2].weight = "c.weight";
  for (const auto& pass : {freeze_matrices, train_only_matrices})
    EXPECT_THAT(refusal(pass(adapted, unknown)),
                AllOf(HasSubstr("a.weight is no parameter"), HasSubstr("c.weight is no parameter")));
  Program frozen = two_layers();
  for (ParamInfo& param : frozen.params) param.trainable = param.name != "w.bias";
  EXPECT_THAT(refusal(freeze_matrices(frozen, two_layers_groups())), HasSubstr("nothing is left to train"));
}

TEST(AddGradientOutsideTest, EveryGroupReadsTheCompleteGradientsOfItsMatrixAndItsFactor) {
  for (const std::int32_t micro_batches : {1, 3}) {
    for (const DType compute : {DType::f32, DType::bf16}) {
      const Program program =
          must(add_gradient_outside(trained(micro_batches, compute), two_layers_groups()));
      EXPECT_EQ(test::count(program)[Op::gradient_outside], 3);
      for (const LoraGroup& group : two_layers_groups()) {
        const ParamInfo& outside = found_param(program, group.outside);
        EXPECT_EQ(outside.shape, Shape({1}));
        EXPECT_TRUE(outside.trainable && !outside.decay && outside.init.std == 0);
        EXPECT_EQ(program.value(outside.value).dtype, DType::f32);
        const ParamInfo& matrix = found_param(program, group.weight);
        EXPECT_FALSE(matrix.trainable);
        EXPECT_EQ(matrix.grad, kNoValue);
        std::size_t at = 0;
        while (program.code[at].out[0] != outside.grad) ++at;
        const Instr& instr = program.code[at];
        EXPECT_EQ(instr.op, Op::gradient_outside);
        EXPECT_EQ(instr.in[1], found_param(program, group.factor()).grad);
        const ValueInfo& whole = program.value(instr.in[0]);
        EXPECT_EQ(whole.kind, ValueKind::micro_batch_grad);
        EXPECT_EQ(whole.dtype, micro_batches > 1 ? DType::f32 : compute) << "a sum of several is in f32";
        EXPECT_EQ(instr.attrs.as<BasisAttrs>().side, group.trained == LoraTrained::a
                                                         ? kernels::SubspaceSide::left
                                                         : kernels::SubspaceSide::right);
        for (std::size_t i = at + 1; i < program.code.size(); ++i)
          for (const ValueId id : instr.in)
            EXPECT_THAT(program.code[i].out, testing::Not(testing::Contains(id))) << "written later";
        std::int64_t sums = 0;
        for (const Instr& each : program.code)
          sums += each.op == Op::accumulate && each.out[0] == instr.in[0] ? 1 : 0;
        EXPECT_EQ(sums, micro_batches > 1 ? micro_batches : 0);
      }
      EXPECT_TRUE(verify(assign_gemm_workspaces(fuse_add_norm(program))).is_ok());
    }
  }
}

TEST(AddGradientOutsideTest, AllProblemsAreReportedAtOnce) {
  std::vector<LoraGroup> groups = two_layers_groups();
  groups[0].trained = LoraTrained::both;
  groups[2].weight = "u.weight";
  EXPECT_THAT(refusal(add_gradient_outside(trained(), groups)),
              AllOf(HasSubstr("w.weight: both factors of the adapter are trained"),
                    HasSubstr("u.weight is no parameter")));
  EXPECT_THAT(refusal(add_gradient_outside(with_matrix_gradients(), two_layers_groups())),
              AllOf(HasSubstr("w.lora_B has no gradient"), HasSubstr("w.lora_A.1 has no gradient"),
                    HasSubstr("v.lora_A has no gradient")));
  const Program frozen = must(derive_backward(
      must(freeze_matrices(must(add_lora(two_layers(), two_layers_groups())), two_layers_groups())), "loss"));
  EXPECT_THAT(refusal(add_gradient_outside(frozen, two_layers_groups())),
              AllOf(HasSubstr("w.weight has no gradient"), HasSubstr("v.weight has no gradient")));
}

TEST(FindBasesTest, EveryBasisIsAResultRightBehindTheGradientThatItIsOf) {
  for (const std::int32_t micro_batches : {1, 3}) {
    const Program program = must(
        find_bases(with_matrix_gradients(micro_batches), two_layers_groups(), kernels::SvdMethod::exact));
    std::vector<std::string> results;
    for (const ValueId id : program.results) results.push_back(program.value(id).name);
    EXPECT_THAT(results, ElementsAre("w.lora_A", "w.lora_A.energy", "w.lora_B.1", "w.lora_B.1.energy",
                                     "v.lora_B", "v.lora_B.energy"));
    EXPECT_EQ(test::count(program)[Op::find_basis], 3);
    for (std::size_t i = 1; i < program.code.size(); ++i) {
      if (program.code[i].op != Op::find_basis) continue;
      const Instr& before = program.code[i - 1];
      EXPECT_TRUE(before.op == Op::find_basis || before.out[0] == program.code[i].in[0]);
      EXPECT_EQ(program.code[i].attrs.as<BasisAttrs>().method, kernels::SvdMethod::exact);
      const ValueInfo& previous = program.value(program.code[i].in[1]);
      EXPECT_EQ(previous.kind, ValueKind::param);
      EXPECT_EQ(program.value(program.code[i].out[0]).shape, previous.shape);
    }
    for (const ParamInfo& param : program.params) {
      EXPECT_FALSE(param.trainable) << param.name;
      EXPECT_EQ(param.grad, kNoValue) << param.name;
    }
  }
}

TEST(FindBasesTest, AnAdaptedProgramKeepsItsParameters) {
  const Program adapted = must(add_lora(two_layers(DType::bf16), two_layers_groups()));
  const Program program =
      must(find_bases(must(derive_backward(must(train_only_matrices(adapted, two_layers_groups())), "loss")),
                      two_layers_groups(), kernels::SvdMethod::subspace));
  EXPECT_EQ(program.params.size(), adapted.params.size());
  for (std::size_t p = 0; p < adapted.params.size(); ++p) {
    EXPECT_EQ(program.params[p].name, adapted.params[p].name);
    EXPECT_EQ(program.params[p].shape, adapted.params[p].shape);
  }
}

TEST(FindBasesTest, AResultLivesNoLongerThanItsInstruction) {
  const Program program =
      must(find_bases(with_matrix_gradients(), two_layers_groups(), kernels::SvdMethod::exact));
  const MemoryPlan plan = plan_memory(program);
  const auto offset = [&](ValueId id) { return plan.offset[static_cast<std::size_t>(id)]; };
  std::set<std::size_t> offsets;
  for (const ValueId id : program.results) {
    EXPECT_NE(offset(id), MemoryPlan::kUnplaced);
    offsets.insert(offset(id));
  }
  EXPECT_LT(offsets.size(), program.results.size()) << "they share memory";
}

TEST(FindBasesTest, AllProblemsAreReportedAtOnce) {
  std::vector<LoraGroup> groups = two_layers_groups();
  groups[0].trained = LoraTrained::both;
  groups[2].weight = "u.weight";
  EXPECT_THAT(refusal(find_bases(with_matrix_gradients(), groups, kernels::SvdMethod::exact)),
              AllOf(HasSubstr("w.weight: both factors of the adapter are trained"),
                    HasSubstr("u.weight is no parameter")));
  EXPECT_THAT(refusal(find_bases(must(derive_backward(two_layers(), "loss")), two_layers_groups(),
                                 kernels::SvdMethod::exact)),
              HasSubstr("w.bias has a gradient that nothing uses"));
}

TEST(ResultsTest, VerifyChecksThem) {
  const auto verdict = [](const std::function<void(Program&)>& change) {
    Program program =
        must(find_bases(with_matrix_gradients(), two_layers_groups(), kernels::SvdMethod::exact));
    change(program);
    return std::string(verify(program).message());
  };
  EXPECT_EQ(verdict([](Program&) {}), "ok");
  EXPECT_THAT(verdict([](Program& p) { p.results.push_back(10000); }), HasSubstr("result is value 10000"));
  EXPECT_THAT(verdict([](Program& p) {
                p.results.push_back(p.add_value({"never", {1}}));
              }),
              HasSubstr("result never is never written"));
  EXPECT_THAT(verdict([](Program& p) { p.values[static_cast<std::size_t>(p.results[0])].name = "loss"; }),
              HasSubstr("results are named loss"));
}

}  // namespace
}  // namespace strata
