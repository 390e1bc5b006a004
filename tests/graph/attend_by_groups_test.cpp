#include <gtest/gtest.h>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

TEST(AttendByGroupsTest, AttentionOfBothWaysIsMarkedAlsoWhereItIsMadeAgain) {
  for (const Recompute recompute : kRecomputeModes) {
    const Program before = test::decoder_program(test::decoder_of(2, 32), 2, recompute),
                  after = attend_by_groups(before);
    int marked = 0;
    for (std::size_t i = 0; i < before.code.size(); ++i) {
      const Instr &was = before.code[i], &is = after.code[i];
      const bool attends = was.op == Op::attention || was.op == Op::attention_backward;
      EXPECT_FALSE(attention_heads(was.attrs).by_groups);
      EXPECT_EQ(attention_heads(is.attrs).by_groups, attends) << op_def(is.op).name;
      marked += attends;
      Attrs attrs = is.attrs;
      attrs.by_groups = false;
      EXPECT_EQ(attrs, was.attrs);  // and nothing else
    }
    EXPECT_GE(marked, 4);  // of two layers, both ways
  }
}

}  // namespace
}  // namespace strata
