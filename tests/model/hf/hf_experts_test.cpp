// Mixtures of experts in folders: each expert by itself, and stacked.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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

Status by_name(std::string_view param, std::span<float> into) {
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
    c.kv_heads = family_limits(GetParam()).grouped_queries ? 2 : 4;
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
    must(export_hf(posix_io(), path, config_of(stacked), by_name, {}));
    return path;
  }
  const test::TempDir dir;
};

TEST_P(HfExpertsTest, BothFormsHoldTheSameParametersAndAreWrittenAsTheyCame) {
  for (const bool stacked : {false, true}) {
    const std::string path = written(stacked);
    const auto folder = must(HfFolder::open(posix_io(), path));
    EXPECT_EQ(folder->config().experts.stacked_files, stacked);
    EXPECT_EQ(must(HfFolder::config_of(posix_io(), path)).experts.stacked_files, stacked);
    const std::vector<HfTensor> tensors = hf_tensors(folder->config());
    const bool has_stacks = std::any_of(tensors.begin(), tensors.end(),
                                        [](const HfTensor& tensor) { return tensor.shape.size() == 3; });
    EXPECT_EQ(has_stacks, stacked);
    const std::int64_t n = 6 * 2 * folder->config().experts.ffn * 24;
    std::vector<float> read(static_cast<std::size_t>(n)), want(read.size());
    must(folder->read_part("layers.1.experts_in.weight", 0, read));
    must(by_name("layers.1.experts_in.weight", want));
    EXPECT_EQ(read, want);
  }
}

// A run knows the form of its folder, which may be gone, by its copy of config.json.
TEST_P(HfExpertsTest, ACopyOfTheConfigSaysWhichFormTheFolderHas) {
  const std::string text = must(HfFolder::open(posix_io(), written(true)))->config_text();
  EXPECT_FALSE(must(decoder_from_hf_config(text)).experts.stacked_files);
  const std::string copy = with_stacked_experts(text);
  const DecoderConfig config = must(decoder_from_hf_config(copy));
  EXPECT_TRUE(config.experts.stacked_files);
  EXPECT_EQ(hf_config_json(config, DType::f32, copy), hf_config_json(config, DType::f32, text));
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
                         ::testing::Values("qwen2_moe", "qwen3_moe", "olmoe", "mixtral", "glm4_moe"),
                         [](const auto& test_case) { return std::string(test_case.param); });

DecoderConfig small_of(const std::string& family) {
  DecoderConfig c = decoder_for_family(family).value();
  c.layers = 2;
  c.hidden = 32;
  c.heads = 4;
  c.ffn = 48;
  c.vocab = 50;
  test::set_tiny_experts(c);
  return c;
}
// What is said of config.json with these values instead of its own.
std::string problem_of(const std::string& family, const std::string& values) {
  auto keys = nlohmann::json::parse(hf_config_json(small_of(family), DType::f32));
  keys.update(nlohmann::json::parse(values));
  const auto config = decoder_from_hf_config(keys.dump());
  return config.has_value() ? "ok" : std::string(config.status().message());
}

TEST(HfExpertsConfigTest, WhatIsMissingOrImpossibleIsNamed) {
  const auto qwen3 = [](const std::string& values) { return problem_of("qwen3_moe", values); };
  EXPECT_EQ(qwen3(R"({"num_experts_per_tok": 6})"), "ok");
  EXPECT_THAT(qwen3(R"({"num_experts_per_tok": 7})"),
              HasSubstr("model.experts_per_token is 7 and model.experts 6"));
  EXPECT_THAT(qwen3(R"({"num_experts": 0})"), HasSubstr("are mixtures of experts"));
  EXPECT_THAT(qwen3(R"({"num_experts": -3})"), HasSubstr("num_experts"));
  EXPECT_THAT(qwen3(R"({"num_experts": "six"})"), HasSubstr("num_experts"));
  EXPECT_THAT(qwen3(R"({"num_experts": 2000})"), HasSubstr("model.experts is 2000; it must be 1 to 1024"));
  EXPECT_THAT(qwen3(R"({"moe_intermediate_size": 0})"), HasSubstr("moe_intermediate_size is 0"));
  EXPECT_THAT(qwen3(R"({"decoder_sparse_step": 0})"), HasSubstr("decoder_sparse_step"));
  EXPECT_THAT(qwen3(R"({"mlp_only_layers": 3})"), HasSubstr("mlp_only_layers is not a list"));
  EXPECT_THAT(qwen3(R"({"mlp_only_layers": ["a"]})"), HasSubstr("mlp_only_layers has"));
  EXPECT_EQ(qwen3(R"({"output_router_logits": true})"), "ok");
  EXPECT_THAT(qwen3(R"({"use_sliding_window": true})"), HasSubstr("use_sliding_window"));
  EXPECT_THAT(problem_of("olmoe", R"({"clip_qkv": 8.0})"), HasSubstr("clip_qkv"));
  EXPECT_THAT(problem_of("qwen2_moe", R"({"use_sliding_window": true, "sliding_window": 8})"),
              HasSubstr("without layer_types"));
  EXPECT_THAT(problem_of("qwen2_moe", R"({"shared_expert_intermediate_size": 0})"),
              HasSubstr("model.shared_ffn is 0; it must be 1 or more"));
  EXPECT_THAT(
      problem_of("olmoe", R"({"architectures": ["OlmoeForSequenceClassification"], "id2label": {"0": "x"}})"),
      HasSubstr("transformers has no reward model of OLMoE"));
}

TEST(HfGlmTest, ItsKeysAreReadAndWritten) {
  DecoderConfig c = small_of("glm4_moe");
  c.layers = 4;
  c.experts.dense_layers = 2;
  c.experts.rule.scale = 2.5f;
  c.experts.rule.renormalize = false;
  c.qk_norm = DecoderConfig::QkNorm::heads;
  const auto keys = nlohmann::json::parse(hf_config_json(c, DType::f32));
  EXPECT_EQ(keys["first_k_dense_replace"], 2);
  EXPECT_EQ(keys["n_shared_experts"], 2);
  EXPECT_EQ(keys["partial_rotary_factor"], 0.5);
  const DecoderConfig got = with_derived_sizes(must(decoder_from_hf_config(keys.dump())));
  EXPECT_TRUE(got == with_derived_sizes(c)) << hf_config_json(got, DType::f32) << keys;
  EXPECT_EQ(got.experts.layers, (std::vector<bool>{false, false, true, true}));
  EXPECT_THAT(problem_of("glm4_moe", R"({"n_group": 4})"),
              HasSubstr("a router with 2 of 4 groups of 6 experts"));
  EXPECT_THAT(problem_of("glm4_moe", R"({"n_shared_experts": 0})"),
              HasSubstr("model.shared_ffn is 0; it must be 1 or more in GLM-4.5"));
  EXPECT_EQ(problem_of("glm4_moe", R"({"output_router_logits": true})"), "ok");
}

TEST(HfGlmTest, TheBiasOfTheChoiceIsF32InFilesOfEveryDtype) {
  const test::TempDir dir;
  const DecoderConfig config = small_of("glm4_moe");
  const auto values = [](std::string_view param, std::span<float> into) {
    std::fill(into.begin(), into.end(), param.ends_with("choice_bias") ? 1.0f + 0x1p-20f : 0.5f);
    return Status::ok();
  };
  must(export_hf(posix_io(), dir.file("glm"), config, values, {.dtype = DType::bf16}));
  must(check_hf_export(posix_io(), dir.file("glm"), values, DType::bf16));
  const auto folder = must(HfFolder::open(posix_io(), dir.file("glm")));
  EXPECT_TRUE(folder->is_all(DType::bf16));
  std::vector<float> bias(6);
  must(folder->read("layers.1.router.choice_bias", bias));
  EXPECT_EQ(bias, std::vector<float>(6, 1.0f + 0x1p-20f));
}

class HfExtraLayerTest : public test::DamagedFolder {
 protected:
  HfExtraLayerTest() : test::DamagedFolder("glm4_moe") {}
};

TEST_F(HfExtraLayerTest, LayersThatPredictFurtherTokensAreNotRead) {
  const auto add = [&](const std::string& name) {
    edit_tensors([](TensorSpec&) { return true; }, {{name, "F32", {2, 2}}});
  };
  add("model.layers.2.eh_proj.weight");
  EXPECT_TRUE(HfFolder::open(posix_io(), path).has_value());
  add("model.layers.1.eh_proj.weight");
  expect_refused(Code::corrupt, {"model.layers.1.eh_proj.weight is not a tensor of this model"});
}

// [experts, in, out], with the rows of gates and ups in turn.
TEST(HfGptOssTest, StacksAreTransposedAndGatesAndUpsTakeTurns) {
  const DecoderConfig config = small_of("gpt_oss");
  const std::int64_t f = config.ffn, h = config.hidden;
  const auto in_file = [&](const std::string& name, std::int64_t element) {
    for (const HfTensor& tensor : hf_tensors(config)) {
      if (tensor.name != "model.layers.1." + name) continue;
      std::vector<float> param(static_cast<std::size_t>(tensor.n_elems())), value(1);
      for (std::size_t i = 0; i < param.size(); ++i) param[i] = static_cast<float>(i);
      gather_hf(tensor, config, element, param, value);
      std::vector<float> back(param.size());
      scatter_hf(tensor, config, element, value, back);
      EXPECT_EQ(back[static_cast<std::size_t>(value[0])], value[0]);
      return static_cast<std::int64_t>(value[0]);
    }
    ADD_FAILURE() << name;
    return std::int64_t{-1};
  };
  const std::int64_t e = 3, column = 5, in = 7;
  for (const std::int64_t up : {0, 1}) {
    const std::int64_t row = e * 2 * f + up * f + column;
    EXPECT_EQ(in_file("mlp.experts.gate_up_proj", (e * h + in) * 2 * f + 2 * column + up), row * h + in);
    EXPECT_EQ(in_file("mlp.experts.gate_up_proj_bias", e * 2 * f + 2 * column + up), row);
  }
  EXPECT_EQ(in_file("mlp.experts.down_proj", (e * f + in) * h + column), (e * h + column) * f + in);
  EXPECT_EQ(in_file("mlp.experts.down_proj_bias", e * h + column), e * h + column);
}

TEST(HfGptOssTest, WithoutAScalingItHasItsOwnAndWithTheDefaultNone) {
  auto keys = nlohmann::json::parse(hf_config_json(small_of("gpt_oss"), DType::f32));
  keys.erase("rope_scaling");
  const DecoderConfig own = must(decoder_from_hf_config(keys.dump()));
  EXPECT_EQ(own.frequencies.scaling, RopeFrequencies::Scaling::yarn);
  EXPECT_EQ(own.frequencies.factor, 32);
  EXPECT_FALSE(own.frequencies.truncate);
  keys["rope_scaling"] = {{"rope_type", "default"}};
  const DecoderConfig plain = must(decoder_from_hf_config(keys.dump()));
  EXPECT_TRUE((plain.frequencies == RopeFrequencies{.theta = 150000}));
  EXPECT_TRUE(must(decoder_from_hf_config(hf_config_json(plain, DType::f32))).frequencies ==
              plain.frequencies);
}

TEST(HfGptOssTest, GatesHaveTheLimitsOfTheConfigAndQuantizedExpertsAreRefused) {
  auto keys = nlohmann::json::parse(hf_config_json(small_of("gpt_oss"), DType::f32));
  keys["swiglu_limit"] = 2.5;
  EXPECT_EQ(must(decoder_from_hf_config(keys.dump())).experts.gate_limit, 2.5f);
  EXPECT_THAT(problem_of("gpt_oss", R"({"swiglu_limit": 0})"), HasSubstr("swiglu_limit"));
  EXPECT_THAT(problem_of("gpt_oss", R"({"quantization_config": {"quant_method": "gptq"}})"),
              HasSubstr("quantization_config.quant_method is 'gptq'"));
}

// As in transformers, which reads the coefficient only if it is asked for the logits of routers.
TEST(HfExpertsConfigTest, TheCoefficientOfTheBalanceIsThatOfTheFolder) {
  const auto coef = [](const std::string& text) { return must(router_aux_in_hf_config(text)); };
  EXPECT_EQ(coef(R"({"model_type": "qwen3_moe", "router_aux_loss_coef": 0.25})"), 0);
  EXPECT_EQ(coef(R"({"model_type": "qwen3_moe", "output_router_logits": false})"), 0);
  EXPECT_EQ(
      coef(R"({"model_type": "qwen3_moe", "output_router_logits": true, "router_aux_loss_coef": 0.25})"),
      0.25);
  EXPECT_EQ(coef(R"({"model_type": "mixtral", "output_router_logits": true})"), 0.001);
  EXPECT_EQ(coef(R"({"model_type": "olmoe", "output_router_logits": true})"), 0.01);
  EXPECT_EQ(coef(R"({"model_type": "gpt_oss", "output_router_logits": true})"), 0.001);
  EXPECT_EQ(coef(R"({"model_type": "llama", "output_router_logits": true})"), 0);
  EXPECT_EQ(coef(R"({"model_type": "glm4_moe", "output_router_logits": true, "router_aux_loss_coef": 0.25})"),
            0)
      << "transformers has no such loss of this family";
  const auto problem = [](const std::string& value) {
    return std::string(
        router_aux_in_hf_config(
            R"({"model_type": "olmoe", "output_router_logits": true, "router_aux_loss_coef": )" + value + "}")
            .status()
            .message());
  };
  EXPECT_THAT(problem("\"much\""), HasSubstr("router_aux_loss_coef"));
  EXPECT_THAT(problem("-1"), HasSubstr("router_aux_loss_coef is -1; it must be 0 or more"));
}

TEST(HfExpertsConfigTest, TheNumberOfExpertsHasTwoNames) {
  auto keys = nlohmann::json::parse(hf_config_json(small_of("qwen3_moe"), DType::f32));
  keys["num_local_experts"] = keys["num_experts"];
  keys.erase("num_experts");
  EXPECT_EQ(must(decoder_from_hf_config(keys.dump())).experts.n, 6);
}

TEST(HfExpertsConfigTest, NoiseOfARouterIsATrainingSettingThatIsNotApplied) {
  EXPECT_EQ(must(ignored_training_settings(R"({"model_type": "mixtral", "router_jitter_noise": 0.5})")),
            "router_jitter_noise = 0.5");
  EXPECT_EQ(must(ignored_training_settings(R"({"model_type": "mixtral", "router_jitter_noise": 0.0})")), "");
}

}  // namespace
}  // namespace strata
