// GGUF files of every family that llama.cpp knows, against values that depend on the parameter.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/model/gguf/export.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/str.h>

#include "family/family.h"
#include "runtime/io/gguf_file.h"
#include "model/gguf/gguf_models.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::GgufFile;
using test::kHeadDim;
using test::kHeads;
using test::kHidden;
using test::model_of;
using test::value_at;
using test::values_of;
using test::wide_llama;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GgufExportTest : public ::testing::Test {
 protected:
  GgufFile exported(const DecoderConfig& config, const GgufExport& options = {}) {
    const std::string path = dir.file(str("model", ++n_files_, ".gguf"));
    notes = must(export_gguf(posix_io(), path, config, tokenizer, values_of, options));
    must(check_gguf_export(posix_io(), path, config, tokenizer, values_of, options));
    return GgufFile::open(path);
  }
  Status refused(const DecoderConfig& config, const ParamSource& source = values_of,
                 const GgufExport& options = {}) {
    const std::string path = dir.file("refused.gguf");
    const auto done = export_gguf(posix_io(), path, config, tokenizer, source, options);
    EXPECT_FALSE(done.has_value());
    EXPECT_THAT(must(posix_io().list(dir.path())), IsEmpty()) << "nothing may be left";
    return done.status();
  }

  const test::TempDir dir;
  const Tokenizer tokenizer = must(Tokenizer::train({}, 257));
  std::vector<std::string> notes;

 private:
  int n_files_ = 0;
};

class GgufFamilyTest : public GgufExportTest, public ::testing::WithParamInterface<std::string_view> {};

TEST_P(GgufFamilyTest, TheFileHoldsEachParameterOnce) {
  const DecoderConfig config = model_of(GetParam());
  const GgufFile file = exported(config);
  std::int64_t n = 0;
  for (const std::string& name : file.names) n += std::ssize(file.values(name));
  const bool head_again = config.tied_head && detail::family_of(config).gguf.head_required;
  DecoderConfig counted = config;
  counted.seq = 8;
  EXPECT_EQ(n, count_parameters(counted) + (head_again ? config.vocab * config.hidden : 0));
  EXPECT_EQ(file.names.size(), file.tensors.size());
  const test::GgufFileTensor& tokens = file.tensors.at("token_embd.weight");
  EXPECT_EQ(tokens.dims, (std::vector<std::uint64_t>{64, 270}));
  EXPECT_EQ(file.values("token_embd.weight")[77], value_at("tokens.weight", 77));
  const std::string architecture = file.metadata["general.architecture"];
  for (const auto& [key, value] :
       std::map<std::string, std::int64_t>{{"context_length", 64},
                                           {"embedding_length", 64},
                                           {"block_count", 2},
                                           {"feed_forward_length", config.ffn},
                                           {"attention.head_count", 4},
                                           {"attention.head_count_kv", config.kv_heads},
                                           {"attention.key_length", 16},
                                           {"vocab_size", 270}})
    EXPECT_EQ(file.metadata[str(architecture, ".", key)], value) << key;
}

TEST_P(GgufFamilyTest, MatricesAreQuantizedAndVectorsAreNot) {
  const GgufFile full = exported(model_of(GetParam()));
  const GgufFile file = exported(model_of(GetParam()), {.format = GgufMix::q8_0});
  EXPECT_EQ(file.metadata["general.file_type"], 7);
  EXPECT_EQ(notes.size(), GetParam() == "gpt_oss" ? 1u : 0u);  // its YaRN has one
  EXPECT_EQ(file.names, full.names);
  for (const std::string& name : file.names) {
    const bool is_matrix = full.tensors.at(name).dims.size() >= 2 && name.ends_with(".weight") &&
                           name != "position_embd.weight" && !name.ends_with(".ffn_gate_inp.weight");
    EXPECT_EQ(file.tensors.at(name).type, is_matrix ? 8u : 0u) << name;
    const std::vector<float> want = full.values(name), got = file.values(name);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], is_matrix ? 0.03 : 0) << name << " " << i;  // up to 5 standard deviations
  }
}

TEST_P(GgufFamilyTest, SixteenBitMatricesAreRounded) {
  const GgufFile full = exported(model_of(GetParam()));
  const std::string down =
      model_of(GetParam()).experts.n > 0 ? "blk.1.ffn_down_exps.weight" : "blk.1.ffn_down.weight";
  for (const GgufMix format : {GgufMix::f16, GgufMix::bf16}) {
    const GgufFile file = exported(model_of(GetParam()), {.format = format});
    EXPECT_EQ(file.metadata["general.file_type"], format == GgufMix::f16 ? 1 : 32);
    const std::vector<float> want = full.values(down), got = file.values(down);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(got[i],
                format == GgufMix::f16 ? f16_to_f32(f32_to_f16(want[i])) : bf16_to_f32(f32_to_bf16(want[i])));
    EXPECT_EQ(file.values("output_norm.weight"), full.values("output_norm.weight"));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GgufFamilyTest, ::testing::ValuesIn(test::families_in_llama_cpp()),
                         [](const auto& test_case) { return std::string(test_case.param); });

// Row 2 i + j of a head is row i + j * 8 of ours.
TEST_F(GgufExportTest, RowsOfQueriesAndKeysAreInPairsWhereLlamaCppRotatesPairs) {
  const std::string param = "layers.1.qkv.weight";
  for (const std::string family : {"llama", "mistral", "smollm3", "qwen3"}) {
    SCOPED_TRACE(family);
    const GgufFile file = exported(model_of(family));
    const auto first_of_row = [&](const std::string& name, std::size_t row) {
      return file.values("blk.1." + name + ".weight")[row * kHidden];
    };
    const bool pairs = family != "qwen3";
    const std::size_t second = pairs ? 8 : 1, keys = kHeads * kHeadDim;
    EXPECT_EQ(first_of_row("attn_q", 1), value_at(param, second * kHidden));
    EXPECT_EQ(first_of_row("attn_q", 16 + 15), value_at(param, (16 + 15) * kHidden));
    EXPECT_EQ(first_of_row("attn_k", 16 + 3), value_at(param, (keys + 16 + (pairs ? 9 : 3)) * kHidden));
    EXPECT_EQ(first_of_row("attn_v", 1), value_at(param, (keys + 2 * kHeadDim + 1) * kHidden));
  }
}

TEST_F(GgufExportTest, BiasesAreReorderedLikeTheirRows) {
  DecoderConfig config = model_of("llama");
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  const GgufFile file = exported(config);
  EXPECT_EQ(file.values("blk.0.attn_q.bias")[1], value_at("layers.0.qkv.bias", 8));
  EXPECT_EQ(file.values("blk.0.attn_output.bias")[5], value_at("layers.0.attn_out.bias", 5));
  EXPECT_EQ(file.values("blk.0.ffn_up.bias")[5], value_at("layers.0.mlp_in.bias", 96 + 5));
}

TEST_F(GgufExportTest, FusedMatricesHaveQueriesThenKeysThenValues) {
  const std::size_t element = 100 * kHidden + 3;
  for (const std::string family : {"gpt2", "bloom", "phi3"}) {
    const GgufFile file = exported(model_of(family));
    EXPECT_EQ(file.values("blk.0.attn_qkv.weight")[element], value_at("layers.0.qkv.weight", element))
        << family;
  }
  const GgufFile glm = exported(model_of("glm4"));
  EXPECT_EQ(glm.tensors.at("blk.0.ffn_up.weight").dims, (std::vector<std::uint64_t>{64, 192}));
  EXPECT_EQ(glm.values("blk.0.post_ffw_norm.weight")[2], value_at("layers.0.mlp_post_norm.weight", 2));
}

TEST_F(GgufExportTest, GemmasNormsHaveTheirOneAdded) {
  const GgufFile file = exported(model_of("gemma3_text"));
  for (const auto& [name, param] :
       std::map<std::string, std::string>{{"output_norm", "final_norm"},
                                          {"blk.0.attn_norm", "layers.0.attn_norm"},
                                          {"blk.0.attn_q_norm", "layers.0.q_norm"},
                                          {"blk.0.post_attention_norm", "layers.0.attn_post_norm"}})
    EXPECT_EQ(file.values(name + ".weight")[3], value_at(param + ".weight", 3) + 1.0f) << name;
  EXPECT_EQ(file.metadata["gemma3.rope.freq_base"], 1e6);
  EXPECT_EQ(file.metadata["gemma3.rope.freq_base_swa"], 1e4);
  EXPECT_EQ(file.metadata["gemma3.attention.sliding_window_pattern"], nlohmann::json({true, true}));
}

TEST_F(GgufExportTest, ATiedHeadIsWrittenOnlyWhereItIsRequired) {
  DecoderConfig config = model_of("llama");
  config.tied_head = true;
  EXPECT_FALSE(exported(config).tensors.contains("output.weight"));
  config = model_of("olmo2");
  config.tied_head = true;
  const GgufFile file = exported(config);
  EXPECT_EQ(file.values("output.weight"), file.values("token_embd.weight"));
}

TEST_F(GgufExportTest, RopeScalingsHaveTheirKeysAndFactors) {
  DecoderConfig config = model_of("llama");
  config.frequencies = {.scaling = RopeFrequencies::Scaling::llama3,
                        .theta = 5000,
                        .factor = 8,
                        .high_freq_factor = 4,
                        .original_positions = 32};
  const std::vector<float> factors = exported(config).values("rope_freqs.weight");
  // Angles of 32 positions, in turns: 5.1, 1.76, 0.61 ...
  ASSERT_EQ(factors.size(), 8u);
  EXPECT_EQ(factors[0], 1);
  EXPECT_NEAR(factors[1], 1 / (0.7466 / 8 + 0.2534), 0.01);
  EXPECT_EQ(factors[2], 8);
  config.frequencies = {.scaling = RopeFrequencies::Scaling::yarn,
                        .factor = 4,
                        .original_positions = 32,
                        .attention_factor = 0.1f * std::log(4.0f) + 1};
  const nlohmann::json yarn = exported(config).metadata;
  EXPECT_EQ(yarn["llama.rope.scaling.type"], "yarn");
  EXPECT_EQ(yarn["llama.rope.scaling.original_context_length"], 32);
  EXPECT_NEAR(yarn["llama.rope.scaling.attn_factor"].get<double>(), 1, 1e-6);
  config.frequencies = {.scaling = RopeFrequencies::Scaling::linear, .factor = 2.5f};
  EXPECT_EQ(exported(config).metadata["llama.rope.scaling.factor"], 2.5);
}

TEST_F(GgufExportTest, TheContextEndsWithAWindowThatLlamaCppDoesNotKnow) {
  DecoderConfig config = model_of("mistral");
  config.window = 24;
  EXPECT_EQ(exported(config).metadata["llama.context_length"], 24);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], HasSubstr("the context is 24 of the model's 64 tokens"));
  config = model_of("gemma2");
  config.window = 24;
  const nlohmann::json gemma = exported(config).metadata;
  EXPECT_EQ(gemma["gemma2.context_length"], 64);
  EXPECT_EQ(gemma["gemma2.attention.sliding_window"], 24);
  EXPECT_THAT(notes, IsEmpty());
}

TEST_F(GgufExportTest, RowsThatBlocksDoNotFillAreF16) {
  DecoderConfig config = model_of("llama");
  config.ffn = 100;
  const GgufFile file = exported(config, {.format = GgufMix::q8_0});
  EXPECT_EQ(file.tensors.at("blk.0.ffn_down.weight").type, 1u);
  EXPECT_EQ(file.tensors.at("blk.0.ffn_up.weight").type, 8u);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0],
              HasSubstr("2 matrices have another format, since q8_0 needs rows of a multiple of 32 values"));
  EXPECT_THAT(notes[0], HasSubstr("blk.0.ffn_down.weight has 100 and is f16"));
}

TEST_F(GgufExportTest, AMixHasAFormatForEachMatrix) {
  const GgufFile file = exported(wide_llama(), {.format = GgufMix::q4_k_m});
  EXPECT_EQ(file.metadata["general.file_type"], 15);
  EXPECT_THAT(notes, IsEmpty());
  const auto type = [&](const std::string& name) {
    return static_cast<GgufFormat>(file.tensors.at(name).type);
  };
  EXPECT_EQ(type("token_embd.weight"), GgufFormat::q4_k);
  EXPECT_EQ(type("output.weight"), GgufFormat::q6_k);
  EXPECT_EQ(type("blk.0.attn_v.weight"), GgufFormat::q4_k);
  EXPECT_EQ(type("blk.1.attn_v.weight"), GgufFormat::q6_k);
  EXPECT_EQ(type("blk.1.ffn_down.weight"), GgufFormat::q6_k);
  EXPECT_EQ(type("blk.1.attn_norm.weight"), GgufFormat::f32);
}

TEST_F(GgufExportTest, ATiedEmbeddingHasTheFormatOfTheHeadUnlessBothAreInTheFile) {
  DecoderConfig config = wide_llama();
  config.tied_head = true;
  EXPECT_EQ(exported(config, {.format = GgufMix::q4_0}).tensors.at("token_embd.weight").type, 14u);
  DecoderConfig olmo = model_of("olmo2");
  olmo.hidden = 256;
  olmo.head_dim = 64;
  olmo.tied_head = true;
  const GgufFile file = exported(olmo, {.format = GgufMix::q4_0});
  EXPECT_EQ(file.tensors.at("token_embd.weight").type, 2u);
  EXPECT_EQ(file.tensors.at("output.weight").type, 14u);
}

TEST_F(GgufExportTest, AnyNumberOfThreadsWritesTheSameFile) {
  const std::string path = dir.file("model.gguf");
  GgufExport options{.format = GgufMix::q5_k_m, .name = "m"};
  must(export_gguf(posix_io(), path, wide_llama(), tokenizer, values_of, options));
  for (const int threads : {1, 3}) {
    const auto pool = must(ThreadPool::create(threads));
    options.pool = pool.get();
    EXPECT_TRUE(check_gguf_export(posix_io(), path, wide_llama(), tokenizer, values_of, options).is_ok());
  }
}

TEST_F(GgufExportTest, WhatLlamaCppCannotComputeIsRefusedAllAtOnce) {
  EXPECT_THAT(refused(model_of("opt")).message(), HasSubstr("no architecture for the family opt"));
  DecoderConfig qwen = model_of("qwen2");
  qwen.out_bias = qwen.mlp_bias = true;
  qwen.head_dim = 8;
  qwen.frequencies.scaling = RopeFrequencies::Scaling::llama3;
  const Status status = refused(qwen);
  EXPECT_EQ(status.code(), Code::unsupported);
  for (const char* what : {"llama.cpp's qwen2 cannot compute this model", "attention_bias", "mlp_bias",
                           "4 heads of 8 are not the hidden size, 64", "the scaling llama3", "--format hf"})
    EXPECT_THAT(status.message(), HasSubstr(what));
  DecoderConfig gemma = model_of("gemma2");
  gemma.query_scalar = 20;
  gemma.score_softcap = 0;
  gemma.tied_head = false;
  for (const char* what : {"square root of 20, there by that of 16", "softcap of 0", "not tied"})
    EXPECT_THAT(refused(gemma).message(), HasSubstr(what));
  DecoderConfig smollm = model_of("smollm3");
  smollm.rope_layers = {true, false};
  EXPECT_THAT(refused(smollm).message(), HasSubstr("layer 1 has no RoPE"));
  DecoderConfig yarn = model_of("qwen3");
  yarn.frequencies = {.scaling = RopeFrequencies::Scaling::yarn, .beta_fast = 4};
  EXPECT_THAT(refused(yarn).message(), HasSubstr("beta_fast 4"));
}

TEST_F(GgufExportTest, ValuesThatAFormatCannotHoldAreRefusedWithTheirTensor) {
  const auto with = [](float x) {
    return ParamSource([x](std::string_view param, std::span<float> into) {
      std::fill(into.begin(), into.end(), 0.5f);
      if (param == "layers.1.mlp_out.weight") into[70] = x;
      return Status();
    });
  };
  const DecoderConfig config = model_of("llama");
  const Status nan =
      refused(config, with(std::numeric_limits<float>::quiet_NaN()), {.format = GgufMix::q8_0});
  EXPECT_EQ(nan.code(), Code::diverged);
  EXPECT_THAT(nan.message(), HasSubstr("element 70 of blk.1.ffn_down.weight"));
  EXPECT_THAT(refused(config, with(1e5f), {.format = GgufMix::f16}).message(),
              HasSubstr("which f16 cannot hold: export as f32 or bf16"));
  EXPECT_THAT(refused(config, with(1e9f), {.format = GgufMix::q8_0}).message(),
              HasSubstr("of blk.1.ffn_down.weight is"));
}

TEST_F(GgufExportTest, AFileThatExistsIsNotReplacedAndADamagedOneIsFound) {
  const DecoderConfig config = model_of("gpt2");
  const std::string path = dir.file("deep/model.gguf");
  must(export_gguf(posix_io(), path, config, tokenizer, values_of, {}));
  EXPECT_THAT(must(posix_io().list(dir.file("deep"))), ::testing::ElementsAre("model.gguf"));
  const auto again = export_gguf(posix_io(), path, config, tokenizer, values_of, {});
  EXPECT_EQ(again.status().code(), Code::invalid);
  EXPECT_THAT(again.status().message(), HasSubstr("already exists"));
  const auto file = must(posix_io().open(path, OpenMode::update));
  const std::uint64_t at = must(file->size()) - 100;
  must(write_all(*file, at, std::vector<std::byte>(1)));
  const Status damaged = check_gguf_export(posix_io(), path, config, tokenizer, values_of, {});
  EXPECT_EQ(damaged.code(), Code::corrupt);
  EXPECT_THAT(damaged.message(), HasSubstr(str("byte ", at)));
}

}  // namespace
}  // namespace strata
