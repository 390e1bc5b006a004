// GGUF files as Hugging Face folders: every parameter, the config and the tokenizer, and files that lie.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/model/gguf/export.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>
#include <strata/model/hf/model_files.h>
#include <strata/text/tokenizer.h>
#include <strata/text/tokenizer_config.h>
#include <strata/runtime/str.h>

#include <strata/runtime/io/gguf/layout.h>
#include "gguf/read/config.h"
#include "gguf/tensors.h"
#include "runtime/io/gguf_file.h"
#include "model/gguf/gguf_models.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::model_of;
using test::values_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GgufReadTest : public ::testing::Test {
 protected:
  std::string exported(const DecoderConfig& config, const GgufExport& options = {}) {
    std::string path = dir.file(str("model", ++n_files_, ".gguf"));
    must(export_gguf(posix_io(), path, config, tokenizer, values_of, options));
    return path;
  }
  std::string written(const std::string& bytes) {
    std::string path = dir.file(str("model", ++n_files_, ".gguf"));
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string bytes_of(const std::string& path) {
    return must(read_text(posix_io(), path, std::uint64_t{1} << 30));
  }
  static Status refused(const std::string& path) {
    const auto opened = HfFolder::open(posix_io(), path);
    return opened.has_value() ? Status::ok() : opened.status();
  }
  /// A file with other metadata and tensors, which are all zeros.
  std::string with(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
    std::string bytes = gguf_header(metadata, tensors);
    for (const GgufTensor& tensor : tensors)
      bytes.append(tensor.bytes() + gguf_padding(tensor.bytes()), '\0');
    return written(bytes);
  }

  const test::TempDir dir;
  Tokenizer tokenizer = must(Tokenizer::train({}, 257));

 private:
  int n_files_ = 0;
};

std::vector<float> values_of_param(const HfFolder& folder, const std::string& name, std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  must(folder.read(name, values));
  return values;
}

/// The parameters of a model and their sizes.
std::map<std::string, std::int64_t> sizes_of(const DecoderConfig& config) {
  std::map<std::string, std::int64_t> sizes;
  for (const HfTensor& tensor : hf_tensors(config)) sizes[tensor.param] += tensor.n_elems();
  return sizes;
}

void expect_same_config(const DecoderConfig& found, const DecoderConfig& want) {
  EXPECT_EQ(hf_config_json(found, DType::f32), hf_config_json(want, DType::f32));
}

/// The same with a window below the positions, if the family has one.
DecoderConfig windowed(DecoderConfig config) {
  if (config.window > 0) config.window = 24;
  return config;
}

class GgufReadFamilyTest : public GgufReadTest, public ::testing::WithParamInterface<std::string_view> {};

TEST_P(GgufReadFamilyTest, AFileHasTheConfigAndTheParametersItWasWrittenFrom) {
  const DecoderConfig given = with_derived_sizes(windowed(model_of(GetParam())));
  const auto folder = must(HfFolder::open(posix_io(), exported(given)));
  DecoderConfig config = given;
  if (config.family == "mistral") {  // it is a llama up to its window, beyond which it slides
    config.family = "llama";
    config.positions = config.window;
    config.window = 0;
    config.sliding = {false, false};
  }
  expect_same_config(folder->config(), config);
  for (const auto& [param, n] : sizes_of(config)) {
    std::vector<float> want(static_cast<std::size_t>(n));
    must(values_of(param, want));
    const bool shifted = config.norm_offset != 0 && param.ends_with("norm.weight");
    if (shifted)  // the file has 1 more
      for (float& x : want) x = (x + 1.0f) - 1.0f;
    EXPECT_EQ(values_of_param(*folder, param, n), want) << param;
  }
}

TEST_P(GgufReadFamilyTest, PartsOfParametersAreThoseOfTheWhole) {
  DecoderConfig config = with_derived_sizes(model_of(GetParam()));
  const auto folder = must(HfFolder::open(posix_io(), exported(config, {.format = GgufMix::q8_0})));
  const std::string param = "layers.1.qkv.weight";
  const std::vector<float> whole = values_of_param(*folder, param, sizes_of(config).at(param));
  std::vector<float> part(1000);
  for (const std::int64_t offset : {0, 1, 63, 1777}) {
    must(folder->read_part(param, offset, part));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + offset)) << offset;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GgufReadFamilyTest, ::testing::ValuesIn(test::families_in_llama_cpp()),
                         [](const auto& of) { return std::string(of.param); });

TEST_F(GgufReadTest, SettingsThatFamiliesShareComeBack) {
  DecoderConfig llama = with_derived_sizes(model_of("llama"));
  llama.qkv_bias = llama.out_bias = llama.mlp_bias = true;
  llama.head_dim = llama.rotary_dim = 8;
  llama.norm_eps = 1e-5f;
  llama.tied_head = true;
  expect_same_config(must(HfFolder::open(posix_io(), exported(llama)))->config(), llama);
  DecoderConfig gemma = with_derived_sizes(model_of("gemma3_text"));
  gemma.window = 24;
  gemma.sliding = {true, false};
  gemma.logit_softcap = 12;
  expect_same_config(must(HfFolder::open(posix_io(), exported(gemma)))->config(), gemma);
}

TEST_F(GgufReadTest, FactorsComeBack) {
  DecoderConfig config = with_derived_sizes(model_of("granite"));
  config.embedding_factor = 3;
  config.residual_factor = 0.7f;
  config.score_factor = 0.2f;
  config.logit_divisor = 16;
  expect_same_config(must(HfFolder::open(posix_io(), exported(config)))->config(), config);
}

TEST_F(GgufReadTest, RopeScalingsComeBack) {
  using Scaling = RopeFrequencies::Scaling;
  DecoderConfig config = with_derived_sizes(model_of("llama"));
  for (const RopeFrequencies& f :
       {RopeFrequencies{.scaling = Scaling::linear, .theta = 5000, .factor = 2.5f},
        RopeFrequencies{.scaling = Scaling::yarn,
        .factor = 4,
        .original_positions = 32,
        .attention_factor = static_cast<float>(0.1 * std::log(4.0) + 1)},
        RopeFrequencies{
            .scaling = Scaling::yarn, .factor = 4, .original_positions = 32, .attention_factor = 1.5f},
        RopeFrequencies{.scaling = Scaling::llama3, .theta = 5000, .factor = 8, .original_positions = 32}}) {
    config.frequencies = f;
    expect_same_config(must(HfFolder::open(posix_io(), exported(config)))->config(), config);
  }
}

TEST_F(GgufReadTest, FactorsOfLlama3AreThoseOfItsPublishedModelsAndOfOthersLikeThem) {
  for (const auto& [factor, high, original] :
       {std::tuple{8.0f, 4.0f, 8192.0f}, {32.0f, 4.0f, 8192.0f}, {16.0f, 8.0f, 4096.0f}}) {
    const RopeFrequencies want{.scaling = RopeFrequencies::Scaling::llama3,
                               .theta = 500000,
                               .factor = factor,
                               .high_freq_factor = high,
                               .original_positions = original};
    RopeFrequencies found{.theta = 500000};
    ASSERT_TRUE(detail::find_llama3_scaling(detail::llama3_factors(want, 128), 128, found));
    EXPECT_EQ(found, want);
  }
  RopeFrequencies found;
  EXPECT_FALSE(detail::find_llama3_scaling(std::vector<float>{1, 3, 2, 8}, 8, found));
}

TEST_F(GgufReadTest, AHeadThatDiffersFromTheEmbeddingIsNotTied) {
  DecoderConfig olmo = model_of("olmo2");
  olmo.tied_head = true;
  EXPECT_TRUE(must(HfFolder::open(posix_io(), exported(olmo)))->config().tied_head);
  olmo.hidden = 256;
  olmo.head_dim = 64;
  const std::string path = exported(olmo, {.format = GgufMix::q4_0});  // whose head is q6_k
  EXPECT_FALSE(must(HfFolder::open(posix_io(), path))->config().tied_head);
}

TEST_F(GgufReadTest, AMixIsReadAsWhatItsBlocksStandFor) {
  const DecoderConfig config = test::wide_llama();
  const auto folder = must(HfFolder::open(posix_io(), exported(config, {.format = GgufMix::q5_k_m})));
  for (const auto& [param, n] : sizes_of(config)) {
    std::vector<float> want(static_cast<std::size_t>(n));
    must(values_of(param, want));
    const std::vector<float> found = values_of_param(*folder, param, n);
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(found[i], want[i], 0.25) << param << " " << i;
  }
}

// --- Texts ---

TEST_F(GgufReadTest, TheTokenizerEncodesAsTheOneItWasWrittenFrom) {
  const std::string text = "Anne's 1813 caf\u00e9 \u4eca\u5929  <s>\n\n\tWE'LL go \u2014 naïve.";
  DecoderConfig config = model_of("llama");
  config.vocab = 700;
  for (const std::string name : {"gpt2", "llama3", "qwen2", "gemma", "mistral"}) {
    tokenizer =
        must(Tokenizer::load(posix_io(), str(STRATA_SOURCE_DIR, "/tests/text/tokenizers/", name, ".json")));
    const Tokenizer found = must(Tokenizer::load(posix_io(), exported(config)));
    EXPECT_EQ(found.vocab_size(), tokenizer.vocab_size()) << name;
    EXPECT_EQ(found.encode(text), tokenizer.encode(text)) << name;
    EXPECT_EQ(found.spec().prefix, tokenizer.spec().prefix) << name;
    for (const AddedToken& token : tokenizer.spec().added)
      EXPECT_EQ(found.is_special(token.id), tokenizer.is_special(token.id)) << name << " " << token.content;
  }
}

TEST_F(GgufReadTest, TheEndOfTextAndTheChatTemplateAreThoseOfTheMetadata) {
  const std::string path = exported(model_of("llama"), {.end = 65, .chat_template = "{{ messages }}"});
  EXPECT_EQ(must(Tokenizer::load(posix_io(), path)).markers().end, 65);
  EXPECT_EQ(must(load_tokenizer_config(posix_io(), path)).chat_template, "{{ messages }}");
  EXPECT_TRUE(model_file_exists(posix_io(), path + "/config.json"));
  EXPECT_FALSE(model_file_exists(posix_io(), path + "/vocab.json"));
  const auto config =
      nlohmann::json::parse(must(read_model_file(posix_io(), path + "/config.json", 1 << 20)));
  EXPECT_EQ(config["eos_token_id"], 65);
}

// --- Files that cannot be read ---

TEST_F(GgufReadTest, WhatIsNotKnownIsNamed) {
  GgufMetadata mamba;
  mamba.add_text("general.architecture", "mamba");
  EXPECT_THAT(refused(with(mamba, {})).message(),
              HasSubstr("general.architecture is mamba; gpt2, bloom, llama"));
  mamba.add_u32("split.count", 3);
  EXPECT_THAT(refused(with(mamba, {})).message(), HasSubstr("the model is in 3 files"));
  GgufMetadata qwen;
  qwen.add_text("general.architecture", "qwen2");
  qwen.add_u32("qwen2.expert_count", 8);
  qwen.add_u32("qwen2.block_count", 1);
  qwen.add_text("qwen2.rope.scaling.type", "longrope");
  const Status missing = refused(with(qwen, {}));
  EXPECT_EQ(missing.code(), Code::corrupt);
  EXPECT_THAT(missing.message(), AllOf(HasSubstr("the key qwen2.embedding_length is missing"),
                                       HasSubstr("token_embd.weight is missing")));
  for (const auto& [key, value] : {std::pair{"embedding_length", 4},
                                   {"attention.head_count", 1},
                                   {"feed_forward_length", 4},
                                   {"context_length", 8}})
    qwen.add_u32(str("qwen2.", key), value);
  qwen.add_f32("qwen2.attention.layer_norm_rms_epsilon", 1e-5f);
  qwen.add_u32("qwen2.unheard_of", 1);
  const Status unknown = refused(with(qwen, {{"token_embd.weight", {9, 4}}}));
  EXPECT_EQ(unknown.code(), Code::unsupported);
  EXPECT_THAT(unknown.message(),
              AllOf(HasSubstr("qwen2.expert_count is set"), HasSubstr("scaling.type is longrope"),
                    HasSubstr("qwen2.unheard_of is not known")));
}

TEST_F(GgufReadTest, TensorsThatAreMissingOrOfAnotherShapeAreNamed) {
  const std::string path = exported(model_of("qwen3"));
  std::string bytes = bytes_of(path);
  bytes.replace(bytes.find("blk.1.ffn_up"), 12, "blk.1.ffn_ux");
  const Status status = refused(written(bytes));
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("blk.1.ffn_up.weight is missing"),
                                      HasSubstr("blk.1.ffn_ux.weight is not a tensor of this model")));
  bytes = bytes_of(path);
  const std::size_t at = bytes.find("blk.1.ffn_up.weight") + 19 + 4;
  --bytes[at];  // columns
  EXPECT_THAT(refused(written(bytes)).message(),
              HasSubstr("blk.1.ffn_up.weight has the shape [96, 63], but the model needs [96, 64]"));
}

TEST_F(GgufReadTest, ATruncatedFileIsCorruptAtItsEndWhereverThatIs) {
  DecoderConfig config = model_of("gpt2");
  config.layers = 1;
  const std::string bytes = bytes_of(exported(config));
  const std::uint64_t header = test::GgufFile(bytes).data_begin;
  std::vector<std::size_t> ends;
  for (std::size_t end = 0; end < header; end += end < 100 ? 1 : 211) ends.push_back(end);
  for (std::size_t end = header; end < bytes.size() - 32; end += 30011) ends.push_back(end);
  for (const std::size_t end : ends) {
    const Status status = refused(written(bytes.substr(0, end)));
    ASSERT_EQ(status.code(), Code::corrupt) << end;
    ASSERT_THAT(status.message(), HasSubstr(": byte ")) << end;
  }
}

// Counts and lengths of 2^64 - 1 and the like: nothing is allocated for them.
TEST_F(GgufReadTest, HugeCountsAreCorruptWithTheirOffset) {
  const std::string bytes = bytes_of(exported(model_of("gpt2")));
  for (const std::size_t at : {std::size_t{8}, std::size_t{16}, std::size_t{24}}) {
    std::string hostile = bytes;
    for (const char byte : {'\xff', '\x7f'}) {
      std::memset(hostile.data() + at, '\xff', 7);
      hostile[at + 7] = byte;
      const Status status = refused(written(hostile));
      EXPECT_EQ(status.code(), Code::corrupt) << at;
      EXPECT_THAT(status.message(), HasSubstr(": byte ")) << at;
    }
  }
}

TEST_F(GgufReadTest, ALongListThatNothingReadsIsNotKept) {
  GgufMetadata metadata;
  metadata.add_i32s("general.hostile", std::vector<std::int32_t>(100000, 7));
  metadata.add_texts("general.texts", std::vector<std::string>(70000, "x"));
  metadata.add_i32s("general.short", std::vector<std::int32_t>(5, 7));
  metadata.add_texts("tokenizer.ggml.tokens", std::vector<std::string>(70000, "x"));
  const auto file = must(GgufReader::open(posix_io(), with(metadata, {})));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(file->metadata().at("general.hostile")));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(file->metadata().at("general.texts")));
  EXPECT_EQ(file->find<std::vector<std::int64_t>>("general.short")->size(), 5u);
  EXPECT_EQ(file->find<std::vector<std::string>>("tokenizer.ggml.tokens")->size(), 70000u);
}

TEST_F(GgufReadTest, ListsAreLimitedTogether) {
  GgufMetadata metadata;
  const std::vector<std::int32_t> half(std::size_t{1} << 21, 0);
  metadata.add_i32s("tokenizer.ggml.scores", half);
  metadata.add_i32s("tokenizer.ggml.token_type", half);
  metadata.add_i32s("general.one_more", std::vector<std::int32_t>(1, 0));
  const Status status = refused(with(metadata, {}));
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("general.one_more: byte "));
  EXPECT_THAT(status.message(),
              HasSubstr("with a list of 1 elements all lists have 4194305, at most 4194304"));
}

TEST_F(GgufReadTest, AnyChangedByteOfTheHeaderIsReadOrRefused) {
  DecoderConfig config = model_of("llama");
  config.layers = 1;
  const std::string bytes = bytes_of(exported(config));
  const std::uint64_t header = test::GgufFile(bytes).data_begin;
  const Rng rng(11, 1);
  for (std::uint64_t i = 0; i < 150; ++i) {
    std::string changed = bytes;
    const auto at = static_cast<std::size_t>(rng.uniform(2 * i) * static_cast<float>(header));
    changed[at] = static_cast<char>(changed[at] ^
                                    static_cast<char>(1 + static_cast<int>(rng.uniform(2 * i + 1) * 254)));
    const std::string path = written(changed);
    const auto folder = HfFolder::open(posix_io(), path);
    if (!folder.has_value()) {
      EXPECT_FALSE(std::string(folder.status().message()).empty());
    }
    (void)Tokenizer::load(posix_io(), path).has_value();
    must(posix_io().remove_all(path));
  }
}

TEST_F(GgufReadTest, OtherFormatsVersionsAndByteOrdersAreNamed) {
  std::string bytes = bytes_of(exported(model_of("gpt2")));
  const auto changed = [&](std::size_t at, const std::string& to) {
    std::string out = bytes;
    out.replace(at, to.size(), to);
    return refused(written(out));
  };
  EXPECT_THAT(changed(0, "GGML").message(), HasSubstr("byte 0: it does not begin with GGUF"));
  EXPECT_EQ(changed(4, "\x01").code(), Code::unsupported);
  EXPECT_THAT(changed(4, std::string(1, '\0')).message(), HasSubstr("the version is 0; 2 and 3 are read"));
  EXPECT_THAT(changed(4, std::string("\0\0\0\x03", 4)).message(), HasSubstr("big-endian"));
  const std::size_t format = bytes.find("token_embd.weight") + 17 + 4 + 16;
  const Status other = changed(format, "\x0a");
  EXPECT_EQ(other.code(), Code::unsupported);
  EXPECT_THAT(other.message(), HasSubstr("token_embd.weight has ggml's format 10"));
}

TEST_F(GgufReadTest, OverlappingTensorsAreCorrupt) {
  const std::string bytes = bytes_of(exported(model_of("gpt2")));
  std::string hostile = bytes;
  const std::size_t at = hostile.find("position_embd.weight") + 20 + 4 + 16 + 4;  // its offset
  std::memset(hostile.data() + at, 0, 8);
  const Status status = refused(written(hostile));
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("overlap"));
}

TEST_F(GgufReadTest, ANotANumberIsCorruptWithItsTensorAndElement) {
  const std::string path = exported(model_of("llama"));
  std::string bytes = bytes_of(path);
  const std::uint64_t at = test::GgufFile(bytes).tensors.at("blk.0.ffn_down.weight").offset + 4 * 7;
  std::memset(bytes.data() + at, 0xff, 4);
  const auto folder = must(HfFolder::open(posix_io(), written(bytes)));
  std::vector<float> values(64 * 96);
  const Status status = folder->read("layers.0.mlp_out.weight", values);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("element 7 of blk.0.ffn_down.weight is"));
}

}  // namespace
}  // namespace strata
