#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A table [9, 4] that is the head, too.
Program tied(float softcap = 0) {
  Builder b(DType::bf16);
  const Value ids = b.input("ids", {5}, DType::i32), targets = b.input("targets", {5}, DType::i32);
  const Value table = b.param("table.weight", {9, 4}, {.trainable = false});
  const Value x = b.linear(b.embedding(ids, table), b.param("w.weight", {4, 4}, {}));
  return must(b.finish({{"loss", b.linear_cross_entropy(x, table, targets, {}, softcap)}}));
}
TokenRows rows_of(std::vector<std::int64_t> tokens) {
  return {"table.weight", "table", std::move(tokens), true, true};
}
Status status_of(const Program& program, const TokenRows& rows) {
  return add_token_rows(program, std::vector{rows}).status();
}

TEST(AddTokenRowsTest, RowsAreTrainedBesideTwoConstantsThatNoFolderHas) {
  const Program program = must(add_token_rows(tied(), std::vector{rows_of({7, 2})}));
  std::vector<std::string> params;
  for (const ParamInfo& param : program.params)
    if (param.name.starts_with("table.token"))
      params.push_back(str(param.name, " ", to_string(param.shape), param.trainable ? " trained" : "",
                           param.init.is_constant ? " constant" : "", param.decay ? " decays" : "",
                           param.derived ? " derived" : ""));
  EXPECT_THAT(params, ElementsAre("table.token_rows [2, 4] trained decays",
                                  "table.token_rows0 [2, 4] constant decays",
                                  "table.token_columns [9, 2] constant decays"));
  for (std::size_t i = 0; i < 2; ++i) {
    const Init& init = program.params[program.params.size() - 3 + i].init;
    EXPECT_EQ(init.picked.of, "table.weight");
    EXPECT_THAT(init.picked.rows, ElementsAre(7, 2));
    EXPECT_EQ(init.picked.columns, 4);
  }
  EXPECT_THAT(program.params.back().init.one_hot, ElementsAre(7, 2));
  EXPECT_EQ(prefix_parameters(program, "other.").params.back().name, "other.table.token_columns");
  const Program prefixed = prefix_parameters(program, "other.");
  EXPECT_EQ(prefixed.params[prefixed.params.size() - 2].init.picked.of, "other.table.weight");
}

TEST(AddTokenRowsTest, BothUsesOfATiedTableReadTheRowsAndOnlyTheseHaveAGradient) {
  const Program program = must(add_token_rows(tied(), std::vector{rows_of({7, 2})}));
  std::map<Op, int> count = test::count(program);
  EXPECT_EQ(count[Op::embedding], 2);
  EXPECT_EQ(count[Op::linear_backward_input], 2);
  EXPECT_EQ(count[Op::linear_cross_entropy], 0);
  EXPECT_EQ(count[Op::cross_entropy], 1);
  const Program derived = must(derive_backward(program, "loss"));
  for (const ParamInfo& param : derived.params)
    EXPECT_EQ(param.grad != kNoValue, param.trainable) << param.name;
  int writers = 0;
  for (const Instr& instr : derived.code)
    for (const ValueId id : instr.out)
      if (derived.value(id).name == "d(table.token_rows)") {
        EXPECT_EQ(instr.op, Op::linear_backward_weight);
        EXPECT_EQ(instr.accumulate & 1u, writers++ == 0 ? 0u : 1u);
        EXPECT_EQ(derived.value(id).dtype, DType::f32) << "it is a sum";
      }
  EXPECT_EQ(writers, 2);
}

TEST(AddTokenRowsTest, AllProblemsAreReportedAtOnce) {
  const Status status = add_token_rows(tied(), std::vector<TokenRows>{rows_of({9, 2, 2, -1}),
                                                                      rows_of({}),
                                                                      {"w.weight", "w", {0}, true, false},
                                                                      {"absent", "absent", {0}, true, false}})
                            .status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("table.weight has rows 0 to 8, not 9"),
            HasSubstr("table.weight has rows 0 to 8, not -1"), HasSubstr("token 2 is named twice"),
            HasSubstr("table.weight: no token is named"),
            HasSubstr("w.weight [4, 4] is not a table of embeddings"), HasSubstr("absent is no parameter")));
}

TEST(AddTokenRowsTest, AHeadWithoutLogitsIsRefused) {
  EXPECT_THAT(std::string(status_of(tied(30), rows_of({1})).message()),
              HasSubstr("tokens of table.weight, the head: logits with a soft cap"));
  TokenRows table = rows_of({1});
  table.in_head = false;
  EXPECT_TRUE(status_of(tied(30), table).is_ok());
}

}  // namespace
}  // namespace strata
