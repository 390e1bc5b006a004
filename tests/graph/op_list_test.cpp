#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

namespace strata {
namespace {

Attrs default_attrs(Op op) {
  switch (op) {
#define STRATA_CASE(name, type) \
  case Op::name:                \
    return type{};
    STRATA_GRAPH_OPS(STRATA_CASE)
#undef STRATA_CASE
  }
  return {};
}

class OpListTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  Op op() const { return static_cast<Op>(GetParam()); }
  const OpDef& def() const { return op_def(op()); }
};

TEST_P(OpListTest, GemmsAreTheOpsWhoseAttributesSayWhetherTheyHaveAWorkspace) {
  const Attrs attrs = default_attrs(op());
  EXPECT_TRUE(attrs.belong_to(op()));
  EXPECT_EQ(def().kind == OpKind::gemm, attrs.gemm() != nullptr);
  EXPECT_FALSE(attrs.has_gemm_workspace());
}

TEST_P(OpListTest, MovesAreTheOpsWithTheNumberOfAMove) {
  EXPECT_EQ(is_move(op()), default_attrs(op()).get_if<MoveAttrs>() != nullptr);
}

TEST_P(OpListTest, ADefinitionNamesOnlyOperandsThatTheOpHas) {
  for (const int operand :
       {def().optional_in.last(), def().shape_only_in, def().f32_grad_in, def().in_place.in})
    EXPECT_LT(operand, def().n_in);
  EXPECT_EQ(def().in_place.in < 0, def().in_place.out < 0);
  EXPECT_TRUE(def().fp8 == nullptr || def().fp8->bias < def().n_in);
}

TEST_P(OpListTest, TheFormWithAnAdditionHasOneMoreOperandAndTheSameAttributes) {
  if (!def().fused_with_add) return;
  EXPECT_EQ(op_def(*def().fused_with_add).n_in, def().n_in + 1);
  EXPECT_TRUE(default_attrs(op()).belong_to(*def().fused_with_add));
}

INSTANTIATE_TEST_SUITE_P(Ops, OpListTest, ::testing::Range(std::size_t{0}, kOps),
                         [](const auto& test) { return std::string(op_name(static_cast<Op>(test.param))); });

TEST(AttrsTest, AttributesOfAnotherTypeThanAskedForAbort) {
  const Attrs attrs = ScaleAttrs{.factor = 2};
  EXPECT_EQ(attrs.as<ScaleAttrs>().factor, 2);
  EXPECT_EQ(attrs.get_if<LinearAttrs>(), nullptr);
  EXPECT_DEATH(static_cast<void>(attrs.as<LinearAttrs>()), "are .*ScaleAttrs.*, not .*LinearAttrs");
  EXPECT_FALSE(attrs.belong_to(Op::linear));
}

}  // namespace
}  // namespace strata
