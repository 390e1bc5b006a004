// Which collectives a program on shards has, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/config/split_annotations.h>
#include <strata/config/train_config.h>
#include <strata/graph/op_list.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/units.h>

#include "sharding/gradient_run.h"

namespace strata {
namespace {

using test::annotations;
using test::kBatch;
using test::kMegatron;
using test::small_config;
using ::testing::HasSubstr;

std::string collectives(const Program& program) {
  std::string text;
  for (const Instr& instr : program.code)
    if (is_collective(instr.op) || instr.op == Op::copy_to_ranks || instr.op == Op::take_rows)
      text += str(program.regions[static_cast<std::size_t>(instr.region)].name,
                  instr.backward ? " backward " : " ", op_name(instr.op), "\n");
  return text;
}

TEST(Partition, TwoAnnotationsOfABlockFindTheCollectivesOfMegatron) {
  const Program whole = must(record_decoder(small_config("llama"), kBatch, DecoderHead::loss));
  const Program part = must(partition(whole, {"tp", 0, 2, 0}, annotations(kMegatron)));
  EXPECT_EQ(collectives(part),
            "layers.0 copy_to_ranks\nlayers.0 all_reduce\nlayers.0 copy_to_ranks\nlayers.0 all_reduce\n"
            "layers.1 copy_to_ranks\nlayers.1 all_reduce\nlayers.1 copy_to_ranks\nlayers.1 all_reduce\n");
}

/// The instructions of block 0, forward and backward, with the shapes of a rank.
std::string block_text(const Program& part) {
  const Program program = simplify_collectives(must(derive_backward(part, "loss")));
  const auto shapes = [&](const std::vector<ValueId>& ids) {
    std::string text;
    for (const ValueId id : ids)
      if (id != kNoValue) text += str(text.empty() ? "" : " ", to_string(program.value(id).shape));
    return text;
  };
  std::string text;
  for (const Instr& instr : program.code)
    if (program.regions[static_cast<std::size_t>(instr.region)].name == "layers.0")
      text += str(instr.backward ? "backward " : "forward ", op_name(instr.op), " ", shapes(instr.in), " -> ",
                  shapes({instr.out[0]}), "\n");
  return text;
}

// Megatron-LM has four all-reduces a block (arXiv 1909.08053, figure 4), and with sequence parallelism four
// all-gathers and four reduce-scatters (arXiv 2205.05198, figure 5).
TEST(Partition, ABlockOfMegatronHasTheInstructionsOnRecord) {
  const Program whole = must(record_decoder(small_config("llama"), kBatch, DecoderHead::loss));
  const auto part = [&](const std::vector<std::string>& texts) {
    return must(partition(whole, {"tp", 0, 2, 0}, annotations(texts)));
  };
  const std::string recorded = "# megatron\n" + block_text(part(kMegatron)) + "# megatron+sp\n" +
                               block_text(part(test::with_sequence_parallelism()));
  const std::string path = STRATA_SOURCE_DIR "/tests/sharding/megatron_block.txt";
  EXPECT_EQ(recorded, must(read_text(posix_io(), path, kMiB))) << "if this is meant, write it to " << path;
  std::vector<std::string> all_four = kMegatron;
  all_four.insert(all_four.end(), {"layers.*.attn_out.weight 1:tp", "layers.*.mlp_out.weight 1:tp"});
  EXPECT_EQ(block_text(part(all_four)), block_text(part(kMegatron)));
}

double attention_flops(const Program& program) {
  double sum = 0;
  for (const Instr& instr : program.code)
    if (const OpKind kind = op_def(instr.op).kind;
        kind == OpKind::attention || kind == OpKind::attention_backward)
      sum += flops(program, instr);
  return sum;
}

// If n ranks had one part after the other, rank r would have (2 r + 1) / n^2 of the work (without the
// diagonal).
TEST(Partition, ZigzagBalancesTheWorkOfAttention) {
  DecoderConfig config = small_config("llama");
  config.seq = 4096;
  const Program whole = must(record_decoder(config, 1, DecoderHead::loss));
  const auto worst = [&](bool zigzag) {
    double most = 0, sum = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const ShardAxis axis{"cp", 3, 4, rank, Cut::of_sequences(1, config.seq, 4, zigzag)};
      const double work = attention_flops(
          must(partition(whole, axis, annotations({"embed/embedding 0:cp", "layers.*/attention 0:cp"}))));
      most = std::max(most, work);
      sum += work;
    }
    EXPECT_NEAR(sum, attention_flops(whole), 1e-3 * sum);
    return most / (sum / 4);
  };
  EXPECT_NEAR(worst(true), 1.0, 1e-3);
  EXPECT_NEAR(worst(false), 1.75, 1e-3);
}

std::string refusal(const Program& whole, int ranks, std::vector<std::string> texts) {
  const auto part = partition(whole, {"tp", 0, ranks, 0}, annotations(std::move(texts)));
  return part.has_value() ? std::string() : part.status().to_string();
}

TEST(Partition, WhatCannotBeSplitLikeThatIsNamedWithBothPlacements) {
  const Program whole = must(record_decoder(small_config("llama"), kBatch, DecoderHead::loss));
  EXPECT_THAT(refusal(whole, 2, {"layers.*.qvk.weight 0:tp"}), HasSubstr("layers.*.qvk.weight"));
  EXPECT_THAT(
      refusal(whole, 2, {"layers.*.qkv.weight 0:tp", "layers.0.* 1:tp"}),
      HasSubstr("layers.0.qkv.weight has two placements: 'layers.*.qkv.weight 0' and 'layers.0.* 1'"));
  EXPECT_THAT(
      refusal(whole, 2, {"final_norm.weight 1:tp"}),
      HasSubstr("'final_norm.weight 1' splits a dimension that final_norm.weight [32] does not have"));
  EXPECT_THAT(refusal(whole, 2, {"final_norm.weight 0:tp"}), HasSubstr("does not suit rmsnorm"));
  EXPECT_THAT(refusal(whole, 3, kMegatron), HasSubstr("on 3 ranks"));
  EXPECT_EQ(refusal(whole, 4, kMegatron), "");
}
// Where the tokens are so many that a matrix is smaller than its operand, an annotated matrix still stays
// split.
TEST(Partition, AnnotatedMatricesAreNotGathered) {
  DecoderConfig config = small_config("llama");
  config.seq = 512;
  const Program whole = must(record_decoder(config, 1, DecoderHead::loss));
  const Program part = must(partition(whole, {"tp", 0, 2, 0}, annotations(kMegatron)));
  EXPECT_EQ(collectives(part).find("gather"), std::string::npos);
}
// Presets name what most models have.
TEST(Partition, AnOptionalAnnotationMayMatchNothingIfAnotherOneMatches) {
  const Program whole = must(record_decoder(small_config("llama"), 1, DecoderHead::loss));
  const ShardAnnotation qkv{"layers.*.qkv.weight", 0},
      absent{.pattern = "layers.*.mlp.weight", .dim = 0, .optional = true};
  const auto split = [&](std::vector<ShardAnnotation> all) { return partition(whole, {"tp", 0, 2, 0}, all); };
  EXPECT_EQ(collectives(must(split({qkv, absent}))), collectives(must(split({qkv}))));
  EXPECT_THAT(std::string(split({absent}).status().message()),
              HasSubstr("parallel.shard: 'layers.*.mlp.weight' matches none of"));
  ShardAnnotation written = absent;
  written.optional = false;
  EXPECT_THAT(std::string(split({qkv, written}).status().message()),
              HasSubstr("parallel.shard: 'layers.*.mlp.weight' matches none of"));
}
TEST(Partition, OnlyAnnotationsOfPresetsAreOptional) {
  TrainConfig config;
  config.parallel.tp = 2;
  config.parallel.shard = {"megatron", "head.weight 0:tp"};
  const SplitAnnotations found = must(split_annotations(config, false));
  ASSERT_EQ(found.along(MeshAxis::tp).size(), 3u);
  EXPECT_TRUE(found.along(MeshAxis::tp)[0].optional);
  EXPECT_TRUE(found.along(MeshAxis::tp)[1].optional);
  EXPECT_FALSE(found.along(MeshAxis::tp)[2].optional);
}
TEST(Partition, AnAnnotationHasAForm) {
  std::string axis;
  for (const char* text : {"", "a.weight", "a.weight 0", "a.weight 2:tp", "a.weight x:tp", " 0:tp",
                           "a.weight 0:", "a.weight gather-2:tp", "a.weight gather-whole:tp"})
    EXPECT_THAT(std::string(parse_annotation(text, axis).status().message()),
                HasSubstr("does not have the form"))
        << text;
  EXPECT_EQ(must(parse_annotation("a b.weight whole:cp", axis)).pattern, "a b.weight");
  EXPECT_EQ(must(parse_annotation("a.weight gather-1:cp", axis)), (ShardAnnotation{"a.weight", 1, true}));
  EXPECT_EQ(axis, "cp");
}

}  // namespace
}  // namespace strata
