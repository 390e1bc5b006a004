// Mixtures of experts in folders: each expert by itself, and stacked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>
#include <strata/model/hf/tensors.h>
#include <strata/model/hf/training_settings.h>
#include <strata/runtime/str.h>

#include "model/hf/damaged_folder.h"
#include "support/temp_dir.h"
#include "support/experts/tiny_experts.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Status numbered(std::string_view param, std::span<float> into) {
  const auto first = static_cast<float>(std::hash<std::string_view>{}(param) % 64);
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = first + static_cast<float>(i % 1000) / 1024.0f;
  return {};
}

class HfExpertsTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  static DecoderConfig config_of(bool stacked) {
    DecoderConfig c = decoder_for_family(GetParam()).value();
    c.layers = 2;
    c.hidden = 24;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = c.qk_norm == DecoderConfig::QkNorm::whole ? 6 : 8;
    c.ffn = 40;
    c.vocab = 31;
    c.positions = 64;
    test::set_tiny_experts(c);
    c.experts.stacked_files = stacked;
    return c;
  }
  std::string written(bool stacked) const {
    const std::string path = dir.file(stacked ? "stacked" : "single");
    must(export_hf(posix_io(), path, config_of(stacked), numbered, {}));
    return path;
  }
  const test::TempDir dir;
};

TEST_P(HfExpertsTest, BothFormsHoldTheSameParametersAndAreWrittenAsTheyCame) {
  for (const bool stacked : {false, true}) {
    const auto folder = must(HfFolder::open(posix_io(), written(stacked)));
    EXPECT_EQ(folder->config().experts.stacked_files, stacked);
    EXPECT_EQ(must(HfFolder::config_of(posix_io(), written(stacked))).experts.stacked_files, stacked);
    const bool has_stacks =
        std::any_of(hf_tensors(folder->config()).begin(), hf_tensors(folder->config()).end(),
                    [](const HfTensor& tensor) { return tensor.shape.size() == 3; });
    EXPECT_EQ(has_stacks, stacked);
    const std::int64_t n = 6 * 2 * folder->config().experts.ffn * 24;
    std::vector<float> read(static_cast<std::size_t>(n)), want(read.size());
    must(folder->read_part("layers.1.experts_in.weight", 0, read));
    must(numbered("layers.1.experts_in.weight", want));
    EXPECT_EQ(read, want);
  }
}

TEST_P(HfExpertsTest, AMissingOrMisshapenExpertIsNamed) {
  const DecoderConfig config = config_of(false);
  for (const HfTensor& tensor : hf_tensors(config)) {
    if (tensor.param != "layers.1.experts_out.weight" || tensor.first_row != 3 * 24) continue;
    const std::string path = written(false), file = path + "/model.safetensors";
    std::string bytes = must(read_text(posix_io(), file, 1 << 22));
    std::string other = tensor.name;
    other[other.find(".3.") + 1] = '9';
    bytes.replace(bytes.find(tensor.name), tensor.name.size(), other);
    must(write_text_atomically(posix_io(), file, bytes));
    EXPECT_THAT(
        std::string(HfFolder::open(posix_io(), path).status().message()),
        AllOf(HasSubstr(tensor.name + " is missing"), HasSubstr(other + " is not a tensor of this model")));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HfExpertsTest,
                         ::testing::Values("qwen2_moe", "qwen3_moe", "olmoe", "mixtral"),
                         [](const auto& test_case) { return std::string(test_case.param); });

std::string problem_of(const std::string& family, const std::string& key, const std::string& value) {
  DecoderConfig c = decoder_for_family(family).value();
  c.layers = 2;
  c.hidden = 32;
  c.heads = 4;
  c.ffn = 48;
  c.vocab = 50;
  c.seq = 16;
  test::set_tiny_experts(c);
  std::string text = hf_config_json(c, DType::f32);
  const std::size_t at = text.find("\"" + key + "\""), end = text.find_first_of(",\n", text.find(':', at));
  if (at == std::string::npos)
    text.insert(text.find('{') + 1, str("\"", key, "\": ", value, ","));
  else
    text.replace(at, end - at, str("\"", key, "\": ", value));
  const auto config = decoder_from_hf_config(text);
  return config.has_value() ? "ok" : std::string(config.status().message());
}

TEST(HfExpertsConfigTest, WhatIsMissingOrImpossibleIsNamed) {
  EXPECT_EQ(problem_of("qwen3_moe", "num_experts_per_tok", "6"), "ok");
  EXPECT_THAT(problem_of("qwen3_moe", "num_experts_per_tok", "7"),
              HasSubstr("model.experts_per_token is 7 and model.experts 6"));
  EXPECT_THAT(problem_of("qwen3_moe", "num_experts", "0"), HasSubstr("are mixtures of experts"));
  EXPECT_THAT(problem_of("qwen3_moe", "num_experts", "-3"), HasSubstr("num_experts"));
  EXPECT_THAT(problem_of("qwen3_moe", "num_experts", "\"six\""), HasSubstr("num_experts"));
  EXPECT_THAT(problem_of("qwen3_moe", "moe_intermediate_size", "0"), HasSubstr("moe_intermediate_size"));
  EXPECT_THAT(problem_of("qwen3_moe", "decoder_sparse_step", "0"), HasSubstr("decoder_sparse_step"));
  EXPECT_THAT(problem_of("qwen3_moe", "mlp_only_layers", "3"), HasSubstr("mlp_only_layers is not a list"));
  EXPECT_THAT(problem_of("qwen3_moe", "output_router_logits", "true"), HasSubstr("output_router_logits"));
  EXPECT_THAT(problem_of("olmoe", "clip_qkv", "8.0"), HasSubstr("clip_qkv"));
}

TEST(HfExpertsConfigTest, TheNumberOfExpertsHasTwoNames) {
  DecoderConfig c = decoder_for_family("qwen3_moe").value();
  c.layers = 2;
  c.hidden = 32;
  c.heads = 4;
  c.ffn = 48;
  c.vocab = 50;
  test::set_tiny_experts(c);
  std::string text = hf_config_json(c, DType::f32);
  const std::string name = "\"num_experts\"";
  text.replace(text.find(name), name.size(), "\"num_local_experts\"");
  EXPECT_EQ(must(decoder_from_hf_config(text)).experts.n, 6);
}

TEST(HfExpertsConfigTest, NoiseOfARouterIsATrainingSettingThatIsNotApplied) {
  EXPECT_EQ(must(ignored_training_settings(R"({"model_type": "mixtral", "router_jitter_noise": 0.5})")),
            "router_jitter_noise = 0.5");
  EXPECT_EQ(must(ignored_training_settings(R"({"model_type": "mixtral", "router_jitter_noise": 0.0})")), "");
}

}  // namespace
}  // namespace strata
