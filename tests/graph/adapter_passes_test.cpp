#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/builder.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/model/decoder.h>

#include "support/experts/tiny_experts.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DecoderConfig decoder(std::string_view family = "llama") {
  DecoderConfig config = decoder_for_family(family).value();
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.ffn = 64;
  config.vocab = 50;
  config.seq = 8;
  config.positions = 16;
  test::set_tiny_experts(config);
  return config;
}
Program recorded(std::int64_t batch = 3, std::string_view family = "llama") {
  return must(record_decoder(decoder(family), batch, DecoderHead::loss));
}
const ValueInfo& made_by(const Program& program, Op op, std::size_t which = 0) {
  for (const Instr& instr : program.code)
    if (instr.op == op && which-- == 0) return program.value(instr.out[0]);
  throw std::runtime_error(op_name(op));
}
std::size_t count(const Program& program, Op op) {
  std::size_t n = 0;
  for (const Instr& instr : program.code) n += instr.op == op ? 1 : 0;
  return n;
}
std::string message(const Result<Program>& result) { return std::string(result.status().message()); }

TEST(VirtualRowsOpsTest, OperandsThatDoNotMatchAreRefused) {
  const auto refused = [](Op op, const Attrs& attrs, std::initializer_list<int> operands) {
    Builder b;
    const Value values[] = {b.input("x", {6, 4}, DType::f32), b.param("two", {2, 4}, {}),
                            b.param("wide", {2, 5}, {}), b.input("i", {6}, DType::i32), Value{}};
    Value out;
    if (operands.size() == 1)
      out = b.op(op, {values[operands.begin()[0]]}, attrs);
    else if (operands.size() == 2)
      out = b.op(op, {values[operands.begin()[0]], values[operands.begin()[1]]}, attrs);
    else
      out = b.op(op, {values[operands.begin()[0]], values[operands.begin()[1]], values[operands.begin()[2]]},
                 attrs);
    return b.finish({{"y", out}}).status().code() == Code::invalid;
  };
  const auto rows = [](std::int32_t n, std::int32_t seq) { return VirtualRowsAttrs{.n = n, .seq = seq}; };
  EXPECT_FALSE(refused(Op::splice_rows, rows(2, 3), {0, 1}));
  EXPECT_FALSE(refused(Op::splice_rows, rows(5, 3), {0, 4}));
  EXPECT_TRUE(refused(Op::splice_rows, rows(2, 4), {0, 1}));
  EXPECT_TRUE(refused(Op::splice_rows, rows(3, 3), {0, 1}));
  EXPECT_TRUE(refused(Op::splice_rows, rows(2, 3), {0, 2}));
  EXPECT_TRUE(refused(Op::splice_rows, rows(2, 3), {0, 3}));
  EXPECT_TRUE(refused(Op::splice_rows, rows(2, 0), {0, 1}));
  EXPECT_FALSE(refused(Op::drop_rows, rows(1, 2), {0}));
  EXPECT_TRUE(refused(Op::drop_rows, rows(1, 3), {0}));
  EXPECT_TRUE(refused(Op::drop_rows, rows(-1, 3), {0}));
  EXPECT_FALSE(refused(Op::replace_rows, NoAttrs{}, {0, 3, 1}));
  EXPECT_TRUE(refused(Op::replace_rows, NoAttrs{}, {0, 0, 1}));
  EXPECT_TRUE(refused(Op::replace_rows, NoAttrs{}, {0, 3, 2}));
}

TEST(AddBottlenecksTest, InSeriesItReadsTheResultAndInParallelTheOperandOfAnotherLayer) {
  const Program program = must(add_bottlenecks(
      recorded(), std::vector<BottleneckModule>{
                      {.weight = "layers.0.attn_out.weight", .name = "a", .width = 5, .scale = 2},
                      {.weight = "layers.1.mlp_out.weight",
                       .input = "layers.1.mlp_in.weight",
                       .name = "p",
                       .width = 3,
                       .gelu = true}}));
  ASSERT_TRUE(verify(program).is_ok());
  EXPECT_EQ(count(program, Op::relu), 1u);
  EXPECT_EQ(count(program, Op::gelu), 1u);
  const auto maker = [&](std::string_view weight) -> const Instr& {
    for (const Instr& instr : program.code)
      if (instr.op == Op::linear && program.value(instr.in[1]).name == weight) return instr;
    throw std::runtime_error(std::string(weight));
  };
  EXPECT_EQ(maker("a.down.weight").in[0], maker("layers.0.attn_out.weight").out[0]);
  EXPECT_EQ(maker("p.down.weight").in[0], maker("layers.1.mlp_in.weight").in[0]);
  EXPECT_EQ(program.params.back().name, "p.up.bias");
  EXPECT_FALSE(program.params.back().decay);
  EXPECT_EQ(program.params.back().init.std, 0.0f);
  // Down and Up are multiplied as the layers are, and nothing else reads the layer's result.
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.in)
      if (id == maker("layers.1.mlp_out.weight").out[0]) {
        EXPECT_EQ(instr.op, Op::add);
      }
}

TEST(AddBottlenecksTest, AllProblemsAreReportedAtOnce) {
  EXPECT_THAT(
      message(add_bottlenecks(
          recorded(),
          std::vector<BottleneckModule>{
              {.weight = "layers.9.mlp_out.weight", .name = "x", .width = 1},
              {.weight = "tokens.weight", .name = "y", .width = 0},
              {.weight = "layers.0.mlp_out.weight", .input = "final_norm.weight", .name = "z", .width = 1}})),
      AllOf(HasSubstr("layers.9.mlp_out.weight is no parameter"),
            HasSubstr("y: the width is 0; it must be at least 1"),
            HasSubstr("final_norm.weight [32] is not the matrix of a linear layer")));
  EXPECT_THAT(
      message(add_bottlenecks(recorded(), std::vector<BottleneckModule>{{.weight = "layers.0.mlp_out.weight",
                                                                         .input = "layers.1.mlp_in.weight",
                                                                         .name = "z",
                                                                         .width = 1}})),
      HasSubstr("z reads what layers.1.mlp_in.weight does, which comes after layers.0.mlp_out"));
}

TEST(AddPromptTest, BlocksHaveTheVirtualRowsAndTheHeadHasNot) {
  for (const std::string_view family : decoder_families()) {
    if (family_limits(family).delta || family_limits(family).short_conv || family_limits(family).mamba)
      continue;  // see add_adapter()
    const Program program =
        must(add_prompt(recorded(3, family), {.n = 5, .windows = {0, 0}}, "tokens.weight", "head"));
    ASSERT_TRUE(verify(program).is_ok()) << family;
    EXPECT_EQ(made_by(program, Op::splice_rows).shape, Shape({3 * 13, 32})) << family;
    EXPECT_EQ(made_by(program, Op::attention).shape.dim(0), 3 * 13) << family;
    EXPECT_EQ(count(program, Op::drop_rows), 1u) << family;
    EXPECT_EQ(made_by(program, Op::drop_rows).shape, Shape({3 * 8, 32})) << family;
    EXPECT_EQ(program.value(program.find("targets")).shape, Shape({3 * 8})) << family;
    EXPECT_EQ(program.params.back().name, "prompt.weight");
  }
}

TEST(AddPrefixTest, EveryAttentionHasAPrefixAndTokensFollowIt) {
  const Program program = must(add_prefix(recorded(), {.n = 5, .windows = {0, 4}}));
  ASSERT_TRUE(verify(program).is_ok());
  EXPECT_EQ(count(program, Op::splice_rows), 2u);
  EXPECT_EQ(count(program, Op::drop_rows), 2u);
  std::vector<std::int32_t> windows;
  for (const Instr& instr : program.code) {
    if (instr.op == Op::positions) {
      EXPECT_EQ(instr.attrs.as<PositionsAttrs>().first, 5);
    }
    if (instr.op == Op::rope_table) {
      EXPECT_EQ(instr.attrs.as<RopeTableAttrs>().positions, 13);
    }
    if (instr.op != Op::attention) continue;
    EXPECT_EQ(instr.attrs.as<AttentionAttrs>().seq, 13);
    windows.push_back(instr.attrs.as<AttentionAttrs>().window);
  }
  EXPECT_EQ(windows, (std::vector<std::int32_t>{0, 4}));
  EXPECT_EQ(program.params.back().name, "layers.1.prefix");
  EXPECT_EQ(program.params.back().shape, Shape({5, 2 * 32}));
}

TEST(VirtualTokensTest, ProgramsOfAnotherFormAreRefused) {
  const VirtualTokens two{.n = 2, .windows = {0, 0}};
  const Program packed = must(record_decoder(decoder(), 1, DecoderHead::loss, DecoderRows::packed));
  for (const auto& result : {add_prompt(packed, two, "tokens.weight", "head"), add_prefix(packed, two)}) {
    EXPECT_EQ(result.status().code(), Code::unsupported);
    EXPECT_THAT(message(result), HasSubstr("not implemented for packed documents"));
  }
  EXPECT_THAT(message(add_prefix(recorded(), {.n = 2, .windows = {0}})),
              HasSubstr("1 windows for 2 attentions"));
  EXPECT_THAT(message(add_prefix(recorded(), {.n = 0, .windows = {0, 0}})),
              HasSubstr("0 virtual tokens; there must be at least 1"));
  EXPECT_THAT(message(add_prompt(recorded(), two, "tokens", "head")), HasSubstr("the program has no tokens"));
  EXPECT_THAT(message(add_prompt(recorded(), two, "head.weight", "head")),
              HasSubstr("head.weight is not the table of an embedding"));
}

}  // namespace
}  // namespace strata
