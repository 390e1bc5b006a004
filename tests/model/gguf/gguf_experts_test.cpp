// GGUF files of mixtures of experts: tensors, keys and formats, and what is refused of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/model/gguf/export.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/str.h>

#include "family/family.h"
#include "model/gguf/gguf_models.h"
#include "model/hf/opened_folder.h"
#include "runtime/io/gguf_file.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::GgufFile;
using test::kHidden;
using test::model_of;
using test::value_at;
using test::values_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Dims = std::vector<std::uint64_t>;

constexpr std::size_t kN = 6;  // experts of a layer

class GgufExpertsTest : public ::testing::Test {
 protected:
  GgufFile exported(const DecoderConfig& config, const GgufExport& options = {},
                    const ParamSource& source = values_of) {
    const std::string path = dir.file(str("model", ++n_files_, ".gguf"));
    notes = must(export_gguf(posix_io(), path, config, tokenizer, source, options));
    must(check_gguf_export(posix_io(), path, config, tokenizer, source, options));
    return GgufFile::open(path);
  }
  std::string refused(const DecoderConfig& config, const GgufExport& options = {}) {
    const auto done =
        export_gguf(posix_io(), dir.file("refused.gguf"), config, tokenizer, values_of, options);
    EXPECT_FALSE(done.has_value());
    return std::string(done.status().message());
  }

  const test::TempDir dir;
  const Tokenizer tokenizer = must(Tokenizer::train({}, 257));
  std::vector<std::string> notes;

 private:
  int n_files_ = 0;
};

std::vector<std::string_view> mixtures() {
  std::vector<std::string_view> names;
  for (const detail::Family& family : detail::families())
    if (family.gguf.experts.any) names.push_back(family.name);
  return names;
}

class GgufMixtureTest : public GgufExpertsTest, public ::testing::WithParamInterface<std::string_view> {};

TEST_P(GgufMixtureTest, EachExpertHasItsGateItsUpAndItsDown) {
  const DecoderConfig config = with_derived_sizes(model_of(GetParam()));
  const auto ffn = static_cast<std::size_t>(config.experts.ffn);
  const GgufFile file = exported(config);
  const std::vector<float> gates = file.values("blk.1.ffn_gate_exps.weight"),
                           ups = file.values("blk.1.ffn_up_exps.weight");
  EXPECT_EQ(file.tensors.at("blk.1.ffn_gate_exps.weight").dims, (Dims{kHidden, ffn, kN}));
  EXPECT_EQ(file.tensors.at("blk.1.ffn_down_exps.weight").dims, (Dims{ffn, kHidden, kN}));
  EXPECT_EQ(file.tensors.at("blk.1.ffn_gate_inp.weight").dims, (Dims{kHidden, kN}));
  for (std::size_t expert = 0; expert < kN; ++expert)
    for (std::size_t row = 0; row < ffn; ++row)
      for (const std::size_t column : {0u, 63u}) {
        const std::size_t i = (expert * ffn + row) * kHidden + column,
                          ours = (2 * expert * ffn + row) * kHidden + column;
        ASSERT_EQ(gates[i], value_at("layers.1.experts_in.weight", ours)) << expert << " " << row;
        ASSERT_EQ(ups[i], value_at("layers.1.experts_in.weight", ours + ffn * kHidden))
            << expert << " " << row;
      }
  EXPECT_EQ(file.values("blk.1.ffn_down_exps.weight")[3 * kHidden * ffn + 5],
            value_at("layers.1.experts_out.weight", 3 * kHidden * ffn + 5));
  EXPECT_EQ(file.values("blk.1.ffn_gate_inp.weight")[70], value_at("layers.1.router.weight", 70));
}

TEST_P(GgufMixtureTest, TheKeysSayHowManyExpertsThereAreAndHowWideTheyAre) {
  const DecoderConfig config = model_of(GetParam());
  const nlohmann::json metadata = exported(config).metadata;
  const std::string prefix = str(std::string(metadata["general.architecture"]), ".");
  EXPECT_EQ(metadata[prefix + "expert_count"], 6);
  EXPECT_EQ(metadata[prefix + "expert_used_count"], 2);
  const bool has_width = GetParam() != "olmoe" && GetParam() != "mixtral";
  EXPECT_EQ(metadata.contains(prefix + "expert_feed_forward_length"), has_width);
  if (has_width) {
    EXPECT_EQ(metadata[prefix + "expert_feed_forward_length"], with_derived_sizes(config).experts.ffn);
  }
}

TEST_P(GgufMixtureTest, ExpertsOfMxfp4HaveTheRestInQ8AndRoutersInF32) {
  const GgufFile full = exported(model_of(GetParam()));
  const GgufFile file = exported(model_of(GetParam()), {.format = GgufMix::mxfp4_moe});
  EXPECT_EQ(file.metadata["general.file_type"], 38);
  for (const auto& [name, tensor] : file.tensors) {
    const bool is_plain =
        tensor.dims.size() < 2 || !name.ends_with(".weight") || name.ends_with("ffn_gate_inp.weight");
    EXPECT_EQ(tensor.type, is_plain ? 0u : tensor.dims.size() == 3 ? 39u : 8u) << name;
  }
  const std::vector<float> want = full.values("blk.1.ffn_up_exps.weight"),
                           got = file.values("blk.1.ffn_up_exps.weight");
  // Values up to 5 have a scale of 1 at most: a quarter of a value, or half of the least step.
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], std::max(0.26f, 0.26f * std::abs(want[i]))) << i;
}

INSTANTIATE_TEST_SUITE_P(Mixtures, GgufMixtureTest, ::testing::ValuesIn(mixtures()),
                         [](const auto& of) { return std::string(of.param); });

TEST_F(GgufExpertsTest, GptOssHasSinksAndBiasesOfExperts) {
  const DecoderConfig config = model_of("gpt_oss");
  const std::size_t ffn = 96;
  const GgufFile file = exported(config);
  EXPECT_EQ(file.values("blk.0.attn_sinks.weight")[3], value_at("layers.0.sinks", 3));
  EXPECT_EQ(file.values("blk.0.post_attention_norm.weight")[3], value_at("layers.0.mlp_norm.weight", 3));
  EXPECT_EQ(file.values("blk.1.ffn_gate_inp.bias")[5], value_at("layers.1.router.bias", 5));
  EXPECT_EQ(file.tensors.at("blk.1.ffn_gate_exps.bias").dims, (Dims{ffn, kN}));
  const std::vector<float> gates = file.values("blk.1.ffn_gate_exps.bias"),
                           ups = file.values("blk.1.ffn_up_exps.bias");
  for (std::size_t i = 0; i < kN * ffn; ++i) {
    const std::size_t ours = i / ffn * 2 * ffn + i % ffn;
    ASSERT_EQ(gates[i], value_at("layers.1.experts_in.bias", ours)) << i;
    ASSERT_EQ(ups[i], value_at("layers.1.experts_in.bias", ours + ffn)) << i;
  }
  EXPECT_EQ(file.values("blk.1.ffn_down_exps.bias")[2 * kHidden + 1],
            value_at("layers.1.experts_out.bias", 2 * kHidden + 1));
  EXPECT_EQ(file.metadata["gpt-oss.attention.sliding_window"], 128);
  EXPECT_EQ(file.metadata["gpt-oss.rope.scaling.type"], "yarn");
  EXPECT_FALSE(file.metadata.contains("gpt-oss.attention.sliding_window_pattern"));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("llama.cpp's gpt-oss rounds the frequencies"));
}

TEST_F(GgufExpertsTest, TheMlpBesideTheExpertsIsTheSharedExpert) {
  const GgufFile qwen = exported(model_of("qwen2_moe"));
  EXPECT_EQ(qwen.tensors.at("blk.0.ffn_gate_inp_shexp.weight").dims, (Dims{kHidden}));
  EXPECT_EQ(qwen.values("blk.0.ffn_gate_inp_shexp.weight")[9], value_at("layers.0.shared_gate.weight", 9));
  EXPECT_EQ(qwen.values("blk.0.ffn_up_shexp.weight")[1],
            value_at("layers.0.mlp_in.weight", 96 * kHidden + 1));
  EXPECT_EQ(qwen.metadata["qwen2moe.expert_shared_feed_forward_length"], 96);
  DecoderConfig config = model_of("glm4_moe");
  config.experts.rule.scale = 1.75f;
  config.experts.rule.renormalize = false;
  const GgufFile glm = exported(config);
  EXPECT_EQ(glm.values("blk.1.ffn_down_shexp.weight")[7], value_at("layers.1.mlp_out.weight", 7));
  EXPECT_EQ(glm.values("blk.0.ffn_down.weight")[7], value_at("layers.0.mlp_out.weight", 7));
  EXPECT_EQ(glm.values("blk.1.exp_probs_b.bias")[4], value_at("layers.1.router.choice_bias", 4));
  for (const auto& [key, value] : std::map<std::string, nlohmann::json>{{"leading_dense_block_count", 1},
                                                                        {"expert_shared_count", 2},
                                                                        {"expert_gating_func", 2},
                                                                        {"expert_weights_norm", false},
                                                                        {"expert_weights_scale", 1.75},
                                                                        {"expert_group_count", 3},
                                                                        {"expert_group_used_count", 2},
                                                                        {"rope.dimension_count", 8}})
    EXPECT_EQ(glm.metadata["glm4moe." + key], value) << key;
}

TEST_F(GgufExpertsTest, ModelsOfEightExpertsHaveMoreBitsForAttention) {
  DecoderConfig config = model_of("mixtral");
  config.hidden = config.ffn = 256;
  config.head_dim = 64;
  config.experts.n = 8;
  const auto type = [&](GgufMix mix, const std::string& part) {
    return static_cast<GgufFormat>(
        exported(config, {.format = mix}).tensors.at("blk.0." + part + ".weight").type);
  };
  EXPECT_EQ(type(GgufMix::q4_k_m, "attn_v"), GgufFormat::q8_0);
  EXPECT_EQ(type(GgufMix::q4_k_m, "attn_k"), GgufFormat::q8_0);
  EXPECT_EQ(type(GgufMix::q4_k_m, "attn_q"), GgufFormat::q4_k);
  EXPECT_EQ(type(GgufMix::q4_k_m, "attn_output"), GgufFormat::q5_k);
  EXPECT_EQ(type(GgufMix::q5_k_m, "attn_output"), GgufFormat::q5_k);
  EXPECT_EQ(type(GgufMix::q6_k, "attn_output"), GgufFormat::q6_k);
  config.experts.n = 7;
  EXPECT_EQ(type(GgufMix::q4_k_m, "attn_k"), GgufFormat::q4_k);
}

TEST_F(GgufExpertsTest, WhatLlamaCppCannotComputeOfExpertsIsRefused) {
  DecoderConfig qwen = model_of("qwen3_moe");
  qwen.experts.rule.renormalize = false;
  qwen.experts.layers = {false, true};
  EXPECT_THAT(refused(qwen), AllOf(HasSubstr("norm_topk_prob is false, there it is always true"),
                                   HasSubstr("the MLP of layer 0 is no mixture of experts")));
  DecoderConfig olmoe = model_of("olmoe");
  olmoe.kv_heads = 2;
  EXPECT_THAT(refused(olmoe), HasSubstr("2 heads of keys and values for 4 of queries"));
  DecoderConfig glm = model_of("glm4_moe");
  glm.experts.layers = {true, false};
  glm.experts.rule.top_groups = 3;
  EXPECT_THAT(refused(glm),
              AllOf(HasSubstr("layer 1 is no mixture of experts, and it is not one of the first"),
                    HasSubstr("the router chooses among 3 of 3 groups of 6 experts")));
  DecoderConfig oss = model_of("gpt_oss");
  oss.experts.gate_limit = 5;
  oss.sliding = {true, true};
  oss.frequencies.truncate = true;
  EXPECT_THAT(refused(oss), AllOf(HasSubstr("swiglu_limit 5 and swiglu_alpha 1.702"),
                                  HasSubstr("layer 1 has a sliding window, and there it has none"),
                                  HasSubstr("truncate true, there always 32, 1 and false")));
  EXPECT_THAT(refused(model_of("qwen3"), {.format = GgufMix::mxfp4_moe}),
              HasSubstr("mxfp4_moe is a format of experts, and the MLPs of qwen3 are no mixtures"));
}

TEST_F(GgufExpertsTest, BothFormsOfFilesHaveTheSameExperts) {
  DecoderConfig config = model_of("qwen3_moe");
  const std::vector<float> want = exported(config).values("blk.1.ffn_up_exps.weight");
  config.experts.stacked_files = true;
  EXPECT_EQ(exported(config).values("blk.1.ffn_up_exps.weight"), want);
}

// The lower half of a byte of the folder is the even value and the upper one the next; in the file the halves
// of byte j are the values j and j + 16.
TEST_F(GgufExpertsTest, BlocksOfMxfp4KeepTheirScalesAndCodes) {
  const auto mxfp4 = kernels::WeightFormat::mxfp4;
  DecoderConfig config = test::quantized_config_of("gpt_oss", mxfp4);
  config.vocab = 270;
  test::OpenedFolder written(config, mxfp4);
  const std::unique_ptr<HfFolder> folder = written.open();
  const ParamSource source = [&](std::string_view param, std::span<float> into) {
    return folder->read(param, into);
  };
  const std::string path = dir.file("folder.gguf");
  must(export_gguf(posix_io(), path, folder->config(), tokenizer, source, {.format = GgufMix::mxfp4_moe}));
  const GgufFile file = GgufFile::open(path);
  const std::string bytes = must(read_text(posix_io(), path, std::uint64_t{1} << 30));
  const std::string name = "model.layers.1.mlp.experts.";
  const std::size_t rows = 96, blocks = 2;  // a row has 64 values
  const std::string &of_folder = written.tensors[name + "gate_up_proj_blocks"].bytes,
                    &scales = written.tensors[name + "gate_up_proj_scales"].bytes;
  for (const std::size_t half : {0u, 1u}) {
    const std::size_t at =
        file.tensors.at(half == 0 ? "blk.1.ffn_gate_exps.weight" : "blk.1.ffn_up_exps.weight").offset;
    for (std::size_t i = 0; i < kN * rows * blocks; ++i) {
      const std::size_t from = (2 * (i / blocks) + half) * blocks + i % blocks;  // gates and ups in turn
      ASSERT_EQ(bytes[at + 17 * i], scales[from]) << "scale of block " << i;
      for (std::size_t j = 0; j < 32; ++j) {
        const int theirs = of_folder[16 * from + j / 2] >> (j % 2 * 4) & 15,
                  ours = bytes[at + 17 * i + 1 + j % 16] >> (j / 16 * 4) & 15;
        ASSERT_EQ(ours, theirs == 8 ? 0 : theirs) << "block " << i << ", value " << j;  // ggml has no -0
      }
    }
  }
}

}  // namespace
}  // namespace strata
