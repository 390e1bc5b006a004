#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>

#include "graph/program_maker.h"

namespace strata {
namespace {

using testing::HasSubstr;

Program small_program() {
  Builder b;
  const Value x = b.input("x", {4, 3}, DType::f32), targets = b.input("targets", {4}, DType::i32);
  b.region("mlp", true);
  const Value hidden = b.gelu(b.linear(x, b.param("w", {5, 3}, {}), b.param("b", {5}, {})));
  return must(b.finish({{"loss", b.cross_entropy(hidden, targets)}}));
}

TEST(BuilderTest, TheFirstErrorIsKeptWithOpAndShapesAndLaterOnesAreNot) {
  Builder b;
  const Value x = b.input("x", {4, 3}, DType::f32);
  b.region("h.1", false);
  const Value bad = b.linear(x, b.param("w", {5, 2}, {}));
  EXPECT_EQ(bad.id, kNoValue);
  EXPECT_EQ(b.gelu(bad).id, kNoValue);
  EXPECT_EQ(b.param("w", {1}, {}).id, kNoValue);
  const Status status = b.finish({{"y", bad}}).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_EQ(status.message(),
            "h.1.linear: needs x [T, K], weight [N, K], bias [N] or none, of one dtype; given x f32[4, 3], w "
            "f32[5, 2], none");
}

TEST(BuilderTest, AnAbsentOperandIsRefused) {
  Builder b;
  const Value x = b.input("x", {4, 3}, DType::f32);
  b.op(Op::gelu_backward, {Value{}, x}, {});
  EXPECT_EQ(b.finish({}).status().message(), "gelu_backward: operand 0 is absent");
}

TEST(BuilderTest, EveryOpRefusesShapesAndDtypesThatDoNotMatch) {
  const auto refuses = [](auto&& record) {
    Builder b;
    const Value x = b.input("x", {4, 6}, DType::f32), i = b.input("i", {4}, DType::i32),
                w = b.param("w", {6}, {});
    record(b, x, i, w);
    return b.finish({}).status().code() == Code::invalid;
  };
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value i, Value) { b.embedding(i, x, 5); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value) { b.embedding(x, x); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value i, Value w) { b.layernorm(x, w, i, 1e-5f); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value w) { b.linear(x, w); }));
  EXPECT_TRUE(refuses([](Builder& b, Value, Value i, Value) { b.gelu(i); }));
  EXPECT_TRUE(refuses([](Builder& b, Value, Value i, Value) { b.add(i, i); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value w) { b.add(x, w); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value) { b.attention(x, {4, 4}, 4); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value) { b.attention(x, {2, 2}, 3); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value) { b.attention(x, {3, 2}, 4); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value) { b.attention(x, {1, 1}, 4, {}, x); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value) { b.cross_entropy(x, x); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value i, Value) { b.rmsnorm(x, i, 1e-5f); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value w) { b.qk_norm(x, w, w, {1, 1}, 1e-5f); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value, Value) {
    b.swiglu(b.linear(x, b.param("o", {3, 6}, {})));
  }));
  EXPECT_TRUE(refuses([](Builder& b, Value, Value i, Value) { b.relu(i); }));
  EXPECT_TRUE(refuses([](Builder& b, Value, Value i, Value) { b.positions(5, 5, i); }));
  EXPECT_TRUE(refuses([](Builder& b, Value, Value, Value) { b.rope_table(4, 3, {}); }));
  EXPECT_TRUE(refuses([](Builder& b, Value x, Value i, Value) {
    b.rope(x, i, b.rope_table(4, 4, {}), {1, 1}, false);
  }));
  const auto routed = [](Builder& b, Value x, std::int32_t k = 2) { return b.router_top_k(x, k, {}); };
  EXPECT_TRUE(refuses([&](Builder& b, Value x, Value, Value) { routed(b, x, 7); }));
  EXPECT_TRUE(refuses([&](Builder& b, Value x, Value, Value) { routed(b, x, 0); }));
  EXPECT_TRUE(refuses([&](Builder& b, Value x, Value i, Value) { b.router_top_k(x, 2, {}, i); }));
  EXPECT_TRUE(refuses([&](Builder& b, Value x, Value, Value) { b.route_rows({x, x}, 6); }));
  EXPECT_TRUE(refuses(
      [&](Builder& b, Value x, Value, Value) { b.gather_rows(x, b.route_rows(routed(b, x), 6), 1); }));
  EXPECT_TRUE(
      refuses([&](Builder& b, Value x, Value, Value) { b.sum_rows(x, b.route_rows(routed(b, x), 6), 2); }));
  EXPECT_TRUE(refuses([&](Builder& b, Value x, Value, Value) {
    b.expert_linear(x, b.param("e", {5, 2, 6}, {}), b.route_rows(routed(b, x), 6));
  }));
  EXPECT_TRUE(refuses([&](Builder& b, Value x, Value, Value) {
    b.expert_gate(x, routed(b, x).weights, b.route_rows(routed(b, x), 6).source, {});
  }));
  EXPECT_TRUE(refuses(
      [&](Builder& b, Value x, Value, Value) { b.router_sums(x, b.route_rows(routed(b, x), 6), x); }));
  EXPECT_TRUE(refuses([&](Builder& b, Value x, Value, Value) {
    b.router_losses(b.router_sums(x, b.route_rows(routed(b, x), 6)), {.rows = 0});
  }));
  EXPECT_FALSE(refuses([&](Builder& b, Value x, Value, Value) {
    const Value sums = b.router_sums(x, b.route_rows(routed(b, x), 6));
    b.router_losses(b.router_sums(x, b.route_rows(routed(b, x), 6), sums), {.rows = 8});
  }));
  EXPECT_FALSE(refuses([&](Builder& b, Value x, Value, Value) {
    const Routed chosen = routed(b, x);
    const RoutedRows rows = b.route_rows(chosen, 6);
    const Value inner = b.expert_linear(b.gather_rows(x, rows, 2), b.param("e", {6, 4, 6}, {}), rows);
    const Value ys = b.expert_linear(b.expert_gate(inner, chosen.weights, rows.source, {}),
                                     b.param("d", {6, 6, 2}, {}), rows, b.param("c", {6, 6}, {}));
    b.sum_rows(ys, rows, 2, x);
  }));
  EXPECT_FALSE(refuses([](Builder& b, Value x, Value i, Value) {
    b.cross_entropy(b.attention(b.gelu(b.add(x, x)), {2, 2}, 4, {}, i), i);
  }));
}

TEST(BuilderTest, AnyOpCanBeRecordedByItsNameInTheList) {
  Builder b;
  const Value x = b.input("x", {4, 6}, DType::f32);
  const Program program = must(b.finish({{"y", b.op(Op::scale, {x}, ScaleAttrs{.factor = 2})}}));
  EXPECT_EQ(to_string(program), "0 scale(x) -> y:[4, 6]\n");
}

TEST(BuilderTest, NamesMustBeUnique) {
  Builder params;
  params.param("w", {2}, {});
  params.param("w", {3}, {});
  EXPECT_THAT(std::string(params.finish({}).status().message()), HasSubstr("parameter w is declared twice"));
  Builder inputs;
  inputs.input("x", {2}, DType::f32);
  inputs.input("x", {2}, DType::f32);
  EXPECT_THAT(std::string(inputs.finish({}).status().message()), HasSubstr("input x"));
  Builder outputs;
  const Value y = outputs.gelu(outputs.input("x", {2}, DType::f32));
  EXPECT_THAT(std::string(outputs.finish({{"x", y}}).status().message()), HasSubstr("output x"));
}

TEST(BuilderTest, EmptyParametersAndOutputsThatNoInstructionWritesAreRefused) {
  Builder empty;
  empty.param("w", {0, 3}, {});
  EXPECT_THAT(std::string(empty.finish({}).status().message()),
              HasSubstr("parameter w has no elements: its shape is [0, 3]"));
  Builder passed;
  EXPECT_EQ(passed.finish({{"y", passed.input("x", {2}, DType::f32)}}).status().code(), Code::invalid);
  Builder dead;
  EXPECT_THAT(std::string(dead.finish({{"y", Value{}}}).status().message()),
              HasSubstr("output y is not a value"));
}

TEST(ProgramTest, PrintsOneLineAnInstruction) {
  EXPECT_EQ(to_string(small_program()),
            "0 linear(x, w, b) -> mlp.linear.y:[4, 5]\n"
            "1 gelu(mlp.linear.y) -> mlp.gelu.y:[4, 5]\n"
            "2 cross_entropy(mlp.gelu.y, targets, -) -> loss:[1] mlp.cross_entropy.losses:[4] "
            "mlp.cross_entropy.lse:[4]\n");
}

TEST(VerifyTest, FindsEveryKindOfBadProgram) {
  const auto verdict = [](auto&& damage) {
    Program program = must(derive_backward(small_program(), "loss"));
    damage(program);
    const Status status = verify(program);
    return std::string(status.is_ok() ? "" : status.message());
  };
  EXPECT_EQ(verdict([](Program&) {}), "");
  EXPECT_THAT(verdict([](Program& p) { std::swap(p.code[0], p.code[1]); }),
              HasSubstr("instruction 0 (gelu): reads mlp.linear.y before it is written"));
  EXPECT_THAT(verdict([](Program& p) { p.code[1].in[0] = 99; }),
              HasSubstr("instruction 1 (gelu): operand 0 is value 99"));
  EXPECT_THAT(verdict([](Program& p) { p.code[1].in[0] = kNoValue; }), HasSubstr("operand 0 is value -1"));
  EXPECT_THAT(verdict([](Program& p) { p.code.back().in.back() = kNoValue; }), HasSubstr("is value -1"));
  EXPECT_THAT(verdict([](Program& p) { p.code[1].in.push_back(0); }),
              HasSubstr("has 2 operands, the op needs 1"));
  EXPECT_THAT(verdict([](Program& p) { p.code[1].out[0] = -7; }), HasSubstr("writes value -7"));
  EXPECT_THAT(verdict([](Program& p) { p.code[1].attrs = ScaleAttrs{}; }),
              HasSubstr("instruction 1 (gelu): has the attributes of another op"));
  EXPECT_THAT(verdict([](Program& p) { p.code[1].out.push_back(p.code[1].out[0]); }),
              HasSubstr("has 2 outputs, the op has 1"));
  EXPECT_THAT(verdict([](Program& p) {
                p.values[static_cast<std::size_t>(p.code[1].out[0])].shape = {4, 6};
              }),
              HasSubstr("of shape f32[4, 6], the op writes f32[4, 5]"));
  EXPECT_THAT(verdict([](Program& p) {
                p.values[static_cast<std::size_t>(p.code[0].in[1])].shape = {5, 9};
              }),
              HasSubstr("instruction 0 (linear): needs"));
  EXPECT_THAT(verdict([](Program& p) { p.code[1].accumulate = 1; }), HasSubstr("adds to mlp.gelu.y"));
  EXPECT_THAT(verdict([](Program& p) { p.code.insert(p.code.begin() + 1, p.code[1]); }),
              HasSubstr("overwrites mlp.gelu.y"));
  EXPECT_THAT(verdict([](Program& p) { p.code.push_back(p.code.back()); }), HasSubstr("overwrites d("));
  EXPECT_THAT(verdict([](Program& p) {
                p.values[static_cast<std::size_t>(p.code[1].out[0])].kind = ValueKind::grad;
                p.code[1].accumulate = 1;
              }),
              HasSubstr("adds to"));
  EXPECT_THAT(verdict([](Program& p) { p.outputs.push_back(p.params[0].grad + 1000); }),
              HasSubstr("an input, state, output or result is value"));
  EXPECT_THAT(verdict([](Program& p) {
                p.outputs.push_back(p.add_value({"never", {1}}));
              }),
              HasSubstr("output never is never written"));
}

TEST(BuilderTest, CachedAttentionNeedsStatesThatMatchItsHeads) {
  const auto verdict = [](Shape keys, Shape values, bool states = true, std::int64_t width = 24) {
    Builder b;
    const Value x = b.input("x", {4, width}, DType::f32), i = b.input("i", {4}, DType::i32);
    const Value k = states ? b.state("k", keys) : b.input("k", keys, DType::f32), v = b.state("v", values);
    const auto program = b.finish({{"y", b.cached_attention(x, i, i, k, v, {4, 1})}});
    return std::string(program.has_value() ? "" : program.status().message());
  };
  EXPECT_EQ(verdict({3, 1, 7, 4}, {3, 1, 7, 4}), "");
  EXPECT_THAT(verdict({3, 1, 7, 4}, {3, 1, 8, 4}),
              HasSubstr("given x f32[4, 24], i i32[4], i i32[4], k f32[3, 1, 7, 4]"));
  EXPECT_NE(verdict({3, 2, 7, 4}, {3, 2, 7, 4}), "");
  EXPECT_NE(verdict({3, 1, 7, 5}, {3, 1, 7, 5}), "");
  EXPECT_NE(verdict({3, 1, 7, 4}, {3, 1, 7, 4}, false), "") << "an input is not a state";
  EXPECT_NE(verdict({3, 1, 7, 4}, {3, 1, 7, 4}, true, 25), "");
  Builder b;
  b.state("k", {2});
  EXPECT_EQ(b.state("k", {2}).id, kNoValue);
}

TEST(BuilderTest, CachedAttentionHasTheDtypeOfItsStates) {
  Builder b(DType::bf16);
  const Value x = b.input("x", {4, 24}, DType::bf16), i = b.input("i", {4}, DType::i32);
  const Value k = b.state("k", {3, 1, 7, 4}), v = b.state("v", {3, 1, 7, 4});
  const Program program = must(b.finish({{"y", b.cached_attention(x, i, i, k, v, {4, 1})}}));
  EXPECT_EQ(program.value(program.outputs.front()).dtype, DType::bf16);
  for (const ValueId state : program.states) EXPECT_EQ(program.value(state).dtype, DType::bf16);
  Builder other(DType::bf16);
  const Value wide = other.input("x", {4, 24}, DType::f32), j = other.input("i", {4}, DType::i32);
  const Value k2 = other.state("k", {3, 1, 7, 4}), v2 = other.state("v", {3, 1, 7, 4});
  EXPECT_THAT(
      std::string(
          other.finish({{"y", other.cached_attention(wide, j, j, k2, v2, {4, 1})}}).status().message()),
      HasSubstr("of the dtype of qkv"));
}

TEST(BuilderTest, AdaptersOfRowsNeedMatricesThatFit) {
  const LoraRowsAttrs attrs{{{{{0, 6, 2}, {8, 4, 1}}}, 2}, 0.5f, 1};
  const auto verdict = [&](const LoraRowsAttrs& given, Shape a = {3, 5}, Shape b = {16}, Shape rows = {4},
                           Shape x = {4, 5}) {
    Builder builder;
    const auto input = [&](const char* name, const Shape& shape) {
      return builder.input(name, shape, DType::f32);
    };
    const Value y = builder.lora_rows(input("base", {4, 12}), input("x", x), input("a", a), input("b", b),
                                      builder.input("adapters", rows, DType::i32), given);
    const auto program = builder.finish({{"y", y}});
    return std::string(program.has_value() ? "" : program.status().message());
  };
  EXPECT_EQ(verdict(attrs), "");
  EXPECT_THAT(verdict(attrs, {2, 5}), HasSubstr("a [3, K], b [16], of one dtype, adapters [T] i32"));
  EXPECT_THAT(verdict(attrs, {3, 6}), HasSubstr("given base f32[4, 12], x f32[4, 5], a f32[3, 6]"));
  EXPECT_NE(verdict(attrs, {3, 5}, {15}), "");
  EXPECT_NE(verdict(attrs, {3, 5}, {16}, {5}), "");
  EXPECT_NE(verdict(attrs, {3, 5}, {16}, {4}, {5, 5}), "");
  EXPECT_NE(verdict({{{{{0, 9, 2}, {8, 4, 1}}}, 2}, 0.5f, 1}), "") << "parts overlap";
  EXPECT_NE(verdict({attrs.parts, 0.5f, -1}), "") << "-1 is no adapter";
}

TEST(OpTableTest, FlopsMatchTheArithmetic) {
  const auto flops_of = [](const Program& program, bool all) {
    double total = 0;
    for (const Instr& instr : program.code)
      if (all || instr.op == Op::attention || instr.op == Op::linear || instr.op == Op::linear_cross_entropy)
        total += flops(program, instr);
    return total;
  };
  const double forward =
      flops_of(must(record_decoder(test::make_decoder_config(1, 32), 2, DecoderHead::loss)), false);
  const double tokens = 32, linear = 12.0 * 32 * 32 + 61 * 32;  // weights of the block and of the head
  EXPECT_DOUBLE_EQ(forward, 2 * tokens * linear + 2 * tokens * 16 * 32);
  EXPECT_GT(flops_of(test::decoder_program(test::make_decoder_config(1, 32), 2), true), 3 * forward);
}

}  // namespace
}  // namespace strata
