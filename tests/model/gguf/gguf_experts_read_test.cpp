// GGUF files of mixtures of experts as Hugging Face folders, and such files that lie.
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/model/gguf/export.h>
#include <strata/model/hf/folder.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/str.h>

#include "model/gguf/gguf_models.h"
#include "runtime/io/gguf_file.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using test::model_of;
using test::value_at;
using test::values_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GgufExpertsReadTest : public ::testing::Test {
 protected:
  std::string exported(const DecoderConfig& config, const GgufExport& options = {}) {
    std::string path = dir.file(str("model", ++n_files_, ".gguf"));
    must(export_gguf(posix_io(), path, config, tokenizer, values_of, options));
    return path;
  }
  static std::string bytes_of(const std::string& path) {
    return must(read_text(posix_io(), path, std::uint64_t{1} << 30));
  }
  std::string written(const std::string& bytes) {
    std::string path = dir.file(str("model", ++n_files_, ".gguf"));
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string refused(const std::string& bytes) {
    const auto opened = HfFolder::open(posix_io(), written(bytes));
    EXPECT_FALSE(opened.has_value());
    return opened.has_value() ? "" : std::string(opened.status().message());
  }
  /// The bytes of the file with another 32-bit number as the value of a key.
  static std::string with_number(std::string bytes, const std::string& key, std::uint32_t value) {
    const std::size_t at = bytes.find(key);
    if (at == std::string::npos) throw std::runtime_error("no key " + key);
    std::memcpy(bytes.data() + at + key.size() + 4, &value, sizeof value);
    return bytes;
  }
  static std::string with_name(std::string bytes, const std::string& from, const std::string& to) {
    if (from.size() != to.size()) throw std::runtime_error("names of other lengths");
    return bytes.replace(bytes.find(from), from.size(), to);
  }

  const test::TempDir dir;
  const Tokenizer tokenizer = must(Tokenizer::train({}, 257));

 private:
  int n_files_ = 0;
};

TEST_F(GgufExpertsReadTest, PartsOfExpertsAreThoseOfTheWhole) {
  const auto folder =
      must(HfFolder::open(posix_io(), exported(model_of("gpt_oss"), {.format = GgufMix::q8_0})));
  for (const std::string param :
       {"layers.1.experts_in.weight", "layers.1.experts_in.bias", "layers.1.experts_out.weight"}) {
    const std::size_t n = param.ends_with("bias")                 ? 6 * 192
                          : param == "layers.1.experts_in.weight" ? 6 * 192 * 64
                                                                  : 6 * 64 * 96;
    std::vector<float> whole(n), part(700);
    must(folder->read(param, whole));
    for (const std::int64_t offset : {0, 1, 95, 191, 192, 400}) {
      must(folder->read_part(param, offset, part));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + offset)) << param << " " << offset;
    }
  }
}

TEST_F(GgufExpertsReadTest, AnotherNumberOfExpertsIsNamedWithBothNumbers) {
  const std::string bytes = bytes_of(exported(model_of("qwen3_moe")));
  EXPECT_THAT(
      refused(with_number(bytes, "qwen3moe.expert_count", 8)),
      HasSubstr("the key qwen3moe.expert_count is 8, but blk.0.ffn_gate_inp.weight has rows for 6 experts"));
  EXPECT_THAT(refused(with_number(bytes, "qwen3moe.expert_used_count", 7)),
              HasSubstr("model.experts_per_token is 7 and model.experts 6"));
  EXPECT_THAT(
      refused(with_number(bytes, "qwen3moe.expert_feed_forward_length", 33)),
      HasSubstr("blk.0.ffn_gate_exps.weight has the shape [6, 32, 64], but the model needs [6, 33, 64]"));
  const std::string glm = bytes_of(exported(model_of("glm4_moe")));
  EXPECT_THAT(refused(with_number(glm, "glm4moe.expert_count", 9)),
              HasSubstr("blk.1.ffn_gate_inp.weight has rows for 6"));
}

TEST_F(GgufExpertsReadTest, TensorsOfExpertsThatAreMissingAreNamed) {
  const std::string bytes = bytes_of(exported(model_of("gpt_oss")));
  EXPECT_THAT(refused(with_name(bytes, "blk.1.ffn_up_exps.weight", "blk.1.ffn_ux_exps.weight")),
              AllOf(HasSubstr("blk.1.ffn_up_exps.weight is missing"),
                    HasSubstr("blk.1.ffn_ux_exps.weight is not a tensor of this model")));
  EXPECT_THAT(refused(with_name(bytes, "blk.0.attn_sinks.weight", "blk.0.attn_sinkx.weight")),
              HasSubstr("blk.0.attn_sinks.weight is missing"));
  const std::string glm = bytes_of(exported(model_of("glm4_moe")));
  EXPECT_THAT(refused(with_name(glm, "blk.1.exp_probs_b.bias", "blk.1.exp_probs_x.bias")),
              HasSubstr("blk.1.exp_probs_b.bias is missing"));
}

TEST_F(GgufExpertsReadTest, RulesOfRoutersThatAreNotKnownAreNamed) {
  const std::string glm = bytes_of(exported(model_of("glm4_moe")));
  EXPECT_THAT(refused(with_number(glm, "glm4moe.expert_gating_func", 1)),
              HasSubstr("glm4moe.expert_gating_func is 1"));
  EXPECT_THAT(refused(with_number(glm, "glm4moe.expert_shared_count", 0xffffffffu)),
              HasSubstr("glm4moe.expert_shared_count is 4294967295; it must be 0 to 1048576"));
  const std::string bytes = bytes_of(exported(model_of("qwen2_moe")));
  EXPECT_THAT(refused(with_name(bytes, "qwen2moe.expert_shared_feed_forward_length",
                                "qwen2moe.expert_shared_feed_forward_lengtX")),
              HasSubstr("qwen2moe.expert_shared_feed_forward_lengtX is not known"));
}

TEST_F(GgufExpertsReadTest, ANotANumberIsNamedWithItsExpert) {
  const std::string path = exported(model_of("qwen3_moe"));
  std::string bytes = bytes_of(path);
  const std::uint64_t at = test::GgufFile(bytes).tensors.at("blk.1.ffn_up_exps.weight").offset;
  std::memset(bytes.data() + at + 4 * (3 * 32 * 64 + 70), 0xff, 4);
  const auto folder = must(HfFolder::open(posix_io(), written(bytes)));
  std::vector<float> values(6 * 64 * 64);
  EXPECT_THAT(folder->read("layers.1.experts_in.weight", values).message(),
              HasSubstr("element 70 of blk.1.ffn_up_exps.weight[3] is"));
}

// llama.cpp's converter can write gates and ups as one tensor: its rows are those of our parameter.
TEST_F(GgufExpertsReadTest, GatesAndUpsMayBeOneTensor) {
  DecoderConfig config = model_of("mixtral");
  const std::string bytes = bytes_of(exported(config));
  const test::GgufFile file(bytes);
  GgufMetadata metadata;
  metadata.add_text("general.architecture", "llama");
  for (const char* key :
       {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
        "feed_forward_length", "context_length", "expert_count", "expert_used_count"})
    metadata.add_u32(str("llama.", key), file.metadata[str("llama.", key)].get<std::int64_t>());
  metadata.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<GgufTensor> tensors;
  std::string data;
  for (const std::string& name : file.names) {
    if (name.find("ffn_up_exps") != std::string::npos) continue;
    std::vector<float> values = file.values(name);
    GgufTensor tensor{name, {file.tensors.at(name).dims.rbegin(), file.tensors.at(name).dims.rend()}};
    if (const std::size_t gate = name.find("ffn_gate_exps"); gate != std::string::npos) {
      tensor.name.replace(gate, 13, "ffn_gate_up_exps");
      tensor.shape[1] *= 2;
      values.resize(2 * values.size());
      must(values_of(str("layers.", name[4], ".experts_in.weight"), values));
    }
    data.append(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    data.append(gguf_padding(tensor.bytes()), '\0');
    tensors.push_back(std::move(tensor));
  }
  const auto folder = must(HfFolder::open(posix_io(), written(gguf_header(metadata, tensors) + data)));
  std::vector<float> values(6 * 2 * 96 * 64);
  must(folder->read("layers.1.experts_in.weight", values));
  EXPECT_EQ(values[5000], value_at("layers.1.experts_in.weight", 5000));
  EXPECT_EQ(folder->config().family, "mixtral");
}

// The last layer of GLM-4.5's files predicts further tokens.
TEST_F(GgufExpertsReadTest, LayersBehindTheLastOneAreLeftOut) {
  DecoderConfig config = model_of("glm4_moe");
  config.layers = 3;
  std::string bytes = bytes_of(exported(config));
  EXPECT_THAT(refused(with_number(bytes, "glm4moe.block_count", 2)),
              HasSubstr("blk.2.attn_norm.weight is not a tensor of this model"));
  // A key of the same length, whose value follows from others, makes room for it.
  const std::string key = "glm4moe.nextn_predict_layers";
  bytes = with_name(bytes, "glm4moe.attention.key_length", key);
  const auto folder = HfFolder::open(posix_io(), written(with_number(bytes, key, 1)));
  ASSERT_TRUE(folder.has_value()) << folder.status().message();
  EXPECT_EQ((*folder)->config().layers, 2);
}

}  // namespace
}  // namespace strata
