// config.json of families with Mamba-2.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/decoder.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/tensors.h>
#include <strata/runtime/status.h>

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json of_hybrid(const char* type) {
  return {{"model_type", type},      {"vocab_size", 31},         {"hidden_size", 64},
          {"intermediate_size", 24}, {"num_hidden_layers", 3},   {"num_attention_heads", 4},
          {"mamba_n_heads", 8},      {"num_key_value_heads", 2}, {"mamba_d_state", 12},
          {"mamba_d_head", "auto"}};
}
json granite() {
  json j = of_hybrid("granitemoehybrid");
  j["layer_types"] = {"linear_attention", "full_attention", "mamba"};
  return j;
}
json falcon() {
  json j = of_hybrid("falcon_h1");
  j["mamba_d_ssm"] = 96;
  return j;
}
json nemotron() {
  return {{"model_type", "nemotron_h"},
          {"vocab_size", 31},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"head_dim", 16},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"mamba_num_heads", 6},
          {"mamba_head_dim", 8},
          {"n_groups", 2},
          {"ssm_state_size", 12},
          {"n_routed_experts", 6},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 24},
          {"moe_shared_expert_intermediate_size", 40},
          {"layers_block_type", {"linear_attention", "moe", "full_attention", "mlp"}}};
}
DecoderConfig read_hybrid(const json& j) { return must(decoder_from_hf_config(j.dump())); }
std::string refused_hybrid(const json& j) {
  return std::string(decoder_from_hf_config(j.dump()).status().message());
}

TEST(HfMambaTest, WhatAConfigSaysComesBackFromItsOwn) {
  json dense = granite();
  dense.update(
      {{"num_local_experts", 0}, {"position_embedding_type", "rope"}, {"time_step_limit", {0.1, 0.9}}});
  json factors = falcon();
  factors.update({{"embedding_multiplier", 2.5},
                  {"lm_head_multiplier", 0.4},
                  {"key_multiplier", 0.6},
                  {"mlp_multipliers", {0.8, 0.5}},
                  {"attention_in_multiplier", 1.25},
                  {"attention_out_multiplier", 0.9},
                  {"ssm_in_multiplier", 1.5},
                  {"ssm_out_multiplier", 0.75},
                  {"ssm_multipliers", {0.35, 0.25, 1.5, 0.5, 0.7}},
                  {"mamba_rms_norm", true}});
  json pattern = nemotron();
  pattern.erase("layers_block_type");
  pattern.update({{"hybrid_override_pattern", "M-*M"}, {"moe_latent_size", 20}, {"time_step_min", 0.2}});
  json latent = nemotron();
  latent["moe_latent_size"] = 20;
  for (const json& j : {granite(), dense, falcon(), factors, nemotron(), pattern, latent}) {
    DecoderConfig config = with_derived_sizes(read_hybrid(j));
    config.seq = 8;
    const DecoderConfig again =
        with_derived_sizes(read_hybrid(json::parse(hf_config_json(config, DType::f32, j.dump()))));
    EXPECT_EQ(again.layers, config.layers) << j["model_type"];
    EXPECT_EQ(again.mixers, config.mixers) << j["model_type"];
    EXPECT_EQ(again.mamba, config.mamba) << j["model_type"];
    EXPECT_EQ(again.experts, config.experts) << j["model_type"];
    EXPECT_EQ(again.hybrid_factors, config.hybrid_factors) << j["model_type"];
    EXPECT_EQ(again.embedding_factor, config.embedding_factor) << j["model_type"];
    EXPECT_EQ(again.rope_layers, config.rope_layers) << j["model_type"];
    EXPECT_EQ(again.ffn, config.ffn) << j["model_type"];
    EXPECT_EQ(again.mlp, config.mlp) << j["model_type"];
  }
}

TEST(HfMambaTest, LayersAreReadInOldWordsAndNew) {
  using enum Mixer;
  EXPECT_THAT(read_hybrid(granite()).mixers, ElementsAre(mamba, attention, mamba));
  EXPECT_THAT(with_derived_sizes(read_hybrid(falcon())).mixers, ElementsAre(both, both, both));
  const DecoderConfig config = read_hybrid(nemotron());
  EXPECT_THAT(config.mixers, ElementsAre(mamba, none, attention, none));
  EXPECT_THAT(config.experts.layers, ElementsAre(false, true, false, false));
  json pattern = nemotron();
  pattern.erase("layers_block_type");
  pattern["hybrid_override_pattern"] = "M-*M-";
  EXPECT_THAT(read_hybrid(pattern).mixers, ElementsAre(mamba, none, attention, mamba, none));
  EXPECT_EQ(read_hybrid(pattern).experts.n, 0) << "no letter is a mixture";
}

// Python writes infinity as a name, which is no JSON; transformers 5 as an object.
TEST(HfMambaTest, StepsMayHaveNoUpperLimit) {
  json j = granite();
  j["time_step_limit"] = {0.25, "LIMIT"};
  for (const std::string limit : {"Infinity", "{\"__float__\": \"Infinity\"}"}) {
    std::string text = j.dump();
    text.replace(text.find("\"LIMIT\""), 7, limit);
    const DecoderConfig config = must(decoder_from_hf_config(text));
    EXPECT_EQ(config.mamba.step_low, 0.25f);
    EXPECT_EQ(config.mamba.step_high, std::numeric_limits<float>::infinity());
  }
  j["note"] = "Infinity \\\" NaN";
  j["time_step_limit"] = {0.25, 1.0};
  EXPECT_EQ(read_hybrid(j).mamba.step_high, 1);
}

TEST(HfMambaTest, TensorsHaveTheNamesOfTheFamily) {
  DecoderConfig config = read_hybrid(nemotron());
  config.seq = 8;
  std::vector<std::string> names;
  for (const HfTensor& tensor : hf_tensors(config)) names.push_back(tensor.name);
  for (const char* name :
       {"backbone.embeddings.weight", "backbone.layers.0.norm.weight", "backbone.layers.0.mixer.A_log",
        "backbone.layers.0.mixer.D", "backbone.layers.0.mixer.conv1d.bias",
        "backbone.layers.1.mixer.experts.5.up_proj.weight",
        "backbone.layers.1.mixer.gate.e_score_correction_bias",
        "backbone.layers.1.mixer.shared_experts.down_proj.weight", "backbone.layers.2.mixer.q_proj.weight",
        "backbone.layers.3.mixer.up_proj.weight", "backbone.norm_f.weight", "lm_head.weight"})
    EXPECT_THAT(names, ::testing::Contains(name));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(HasSubstr("gate_proj"))));
}

TEST(HfMambaTest, WhatIsNotComputedIsRefusedByName) {
  json j = granite();
  j["layer_types"] = {"linear_attention", "sliding_attention", "mamba"};
  EXPECT_THAT(refused_hybrid(j), HasSubstr("layer_types has \"sliding_attention\""));
  j = granite();
  j["position_embedding_type"] = "alibi";
  EXPECT_THAT(refused_hybrid(j), HasSubstr("position_embedding_type is alibi"));
  j = granite();
  j["mamba_d_head"] = 10;
  EXPECT_THAT(refused_hybrid(j), HasSubstr("mamba_n_heads is 8, mamba_d_head 10"));
  j = granite();
  j["mamba_n_groups"] = 3;
  EXPECT_THAT(refused_hybrid(j), HasSubstr("8 heads in 3 groups"));
  j = granite();
  j["time_step_limit"] = {0.5, 0.25};
  EXPECT_THAT(refused_hybrid(j), HasSubstr("limited to 0.5 and 0.25"));
  j["time_step_limit"] = {0.5, "many"};
  EXPECT_THAT(refused_hybrid(j), HasSubstr("time_step_limit has \"many\""));
  j = falcon();
  j["ssm_multipliers"] = {1.0, 1.0};
  EXPECT_THAT(refused_hybrid(j), HasSubstr("ssm_multipliers is not a list of 5 numbers"));
  j["ssm_multipliers"] = {1.0, 1.0, 0.0, 1.0, 1.0};
  EXPECT_THAT(refused_hybrid(j), HasSubstr("ssm_multipliers has 0.0"));
  j = nemotron();
  j["layers_block_type"] = {"linear_attention", "attention", "delta"};
  EXPECT_THAT(refused_hybrid(j), HasSubstr("layer_types has \"delta\""));
  j.erase("layers_block_type");
  EXPECT_THAT(refused_hybrid(j), HasSubstr("num_hidden_layers is missing"));
  j["hybrid_override_pattern"] = "MX";
  EXPECT_THAT(refused_hybrid(j), HasSubstr("the letter with the code 88"));
  j = nemotron();
  j["mlp_hidden_act"] = "silu";
  EXPECT_THAT(refused_hybrid(j), HasSubstr("mlp_hidden_act is silu"));
  j = nemotron();
  j["mamba_hidden_act"] = "gelu";
  EXPECT_THAT(refused_hybrid(j), HasSubstr("mamba_hidden_act is gelu"));
}

}  // namespace
}  // namespace strata
