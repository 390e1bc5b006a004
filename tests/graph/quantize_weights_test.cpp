#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/graph/op_list.h>
#include <strata/graph/passes.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/decoder.h>

#include "support/experts/tiny_experts.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DecoderConfig config_of(std::string_view family) {
  DecoderConfig config = decoder_for_family(family).value();
  config.layers = 2;
  config.hidden = 32;
  config.heads = 4;
  config.ffn = 64;
  config.vocab = 50;
  config.seq = 8;
  test::set_tiny_experts(config);
  return config;
}
Program frozen(std::string_view family) {
  Program program = must(record_decoder(config_of(family), 1, DecoderHead::loss));
  for (ParamInfo& param : program.params) param.trainable = false;
  return program;
}

TEST(QuantizeWeightsTest, EveryMatrixOfTheBlocksIsQuantizedAndNothingElse) {
  for (const std::string_view family : decoder_families()) {
    const Program before = frozen(family);
    const Program after =
        must(quantize_weights(before, kernels::WeightFormat::nf4, weight_parts(config_of(family))));
    std::size_t n = 0;
    const bool only_experts = family == "gpt_oss";
    for (std::size_t p = 0; p < after.params.size(); ++p) {
      const ParamInfo &was = before.params[p], &now = after.params[p];
      const bool of_experts = was.shape.rank == 3,
                 is_matrix = (test::is_linear_matrix(was) && !only_experts) || of_experts;
      EXPECT_EQ(now.quantized.format != kernels::WeightFormat::full, is_matrix) << family << " " << was.name;
      if (!is_matrix) continue;
      ++n;
      EXPECT_EQ(now.quantized.n_elems(), was.shape.n_elems()) << was.name;
      EXPECT_EQ(now.shape, Shape({now.quantized.bytes()})) << was.name;
      EXPECT_EQ(now.quantized.count, of_experts ? was.shape.dim(0) : 1) << was.name;
      EXPECT_EQ(after.value(now.value).dtype, DType::u8);
    }
    EXPECT_GE(n, 2u * 2u) << family << ": those of attention, at least";
    EXPECT_EQ(has_op(after, Op::linear_quantized), !only_experts) << family;
    EXPECT_EQ(has_op(after, Op::expert_linear_quantized), config_of(family).experts.n > 0) << family;
    EXPECT_FALSE(has_op(after, Op::expert_linear)) << family;
  }
}

TEST(QuantizeWeightsTest, BackwardMultipliesByTheSameMatrices) {
  Program program = frozen("llama");
  program.params.front().trainable = true;  // the embedding
  const Program train = must(derive_backward(
      must(quantize_weights(program, kernels::WeightFormat::int8, weight_parts(config_of("llama")))),
      "loss"));
  std::size_t forward = 0, backward = 0;
  for (const Instr& instr : train.code) {
    forward += instr.op == Op::linear_quantized ? 1 : 0;
    backward += instr.op == Op::linear_quantized_backward_input ? 1 : 0;
    EXPECT_NE(instr.op, Op::linear_backward_input);
  }
  EXPECT_EQ(forward, 8u);
  EXPECT_EQ(backward, 8u);
}

TEST(QuantizeWeightsTest, BackwardThroughExpertsReadsTheSameMatrices) {
  Program program = frozen("qwen3_moe");
  program.params.front().trainable = true;  // the embedding
  const Program train = must(derive_backward(
      must(quantize_weights(program, kernels::WeightFormat::mxfp4, weight_parts(config_of("qwen3_moe")))),
      "loss"));
  std::size_t forward = 0, backward = 0;
  for (const Instr& instr : train.code) {
    forward += instr.op == Op::expert_linear_quantized ? 1 : 0;
    backward += instr.op == Op::expert_linear_quantized_backward_input ? 1 : 0;
    EXPECT_NE(instr.op, Op::expert_linear_backward_input);
  }
  EXPECT_EQ(forward, 2u);
  EXPECT_EQ(backward, 2u);
}

TEST(QuantizeWeightsTest, AllProblemsAreReportedAtOnce) {
  Program program = frozen("gpt2");
  for (ParamInfo& param : program.params) param.trainable = param.name == "layers.1.mlp_in.weight";
  const WeightParts weights[] = {{"layers.0.qkv.weight", {90}},
                                 {"layers.1.mlp_in.weight", {64}},
                                 {"layers.7.qkv.weight", {96}},
                                 {"tokens.weight", {50}},
                                 {"layers.0.mlp_out.weight", {32}}};
  const Status status = quantize_weights(program, kernels::WeightFormat::nf4_dq, weights).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("layers.0.qkv.weight [96, 32] has 96 rows, its parts 90"),
            HasSubstr("layers.1.mlp_in.weight is trained; in nf4-dq it cannot be"),
            HasSubstr("layers.7.qkv.weight is no parameter"),
            HasSubstr("tokens.weight [50, 32] is not the matrix of linear layers, or of experts, alone"),
            testing::Not(HasSubstr("mlp_out"))));
}

}  // namespace
}  // namespace strata
