// config.json of families that have other layers than plain attention.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/tensors.h>

#include "model/adapter/small_decoder.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json qwen3_5() {
  return {{"model_type", "qwen3_5_text"}, {"vocab_size", 31},          {"hidden_size", 64},
          {"intermediate_size", 96},      {"num_hidden_layers", 4},    {"num_attention_heads", 4},
          {"num_key_value_heads", 2},     {"linear_num_key_heads", 2}, {"linear_num_value_heads", 6}};
}
json lfm2() {
  return {{"model_type", "lfm2"}, {"vocab_size", 31},       {"hidden_size", 64},
          {"block_ff_dim", 100},  {"num_hidden_layers", 3}, {"num_attention_heads", 4}};
}
json deepseek(const char* type) {
  return {{"model_type", type},      {"vocab_size", 31},         {"hidden_size", 64},
          {"intermediate_size", 96}, {"num_hidden_layers", 3},   {"num_attention_heads", 4},
          {"n_routed_experts", 16},  {"num_experts_per_tok", 2}, {"moe_intermediate_size", 8},
          {"kv_lora_rank", 20},      {"qk_nope_head_dim", 12},   {"qk_rope_head_dim", 8},
          {"v_head_dim", 16}};
}
DecoderConfig read(const json& j) { return must(decoder_from_hf_config(j.dump())); }
std::string refused(const json& j) {
  return std::string(decoder_from_hf_config(j.dump()).status().message());
}

TEST(HfMixersTest, WhatAConfigSaysComesBackFromItsOwn) {
  json mla = deepseek("deepseek_v3");
  mla["rope_scaling"] = {{"rope_type", "yarn"},
                         {"factor", 4.0},
                         {"mscale", 0.7},
                         {"mscale_all_dim", 0.9},
                         {"original_max_position_embeddings", 32}};
  json best = deepseek("deepseek_v2");
  best.update({{"topk_method", "group_limited_greedy"}, {"n_group", 4}, {"topk_group", 2}});
  json idxs = lfm2();
  idxs.update({{"full_attn_idxs", {1}}, {"conv_bias", true}});
  for (const json& j : {qwen3_5(), idxs, mla, best, deepseek("deepseek_v2"), deepseek("glm4_moe_lite")}) {
    DecoderConfig config = with_derived_sizes(read(j));
    config.seq = 8;
    const DecoderConfig again =
        with_derived_sizes(read(json::parse(hf_config_json(config, DType::f32, j.dump()))));
    EXPECT_EQ(again.mixers, config.mixers) << j["model_type"];
    EXPECT_EQ(again.delta, config.delta) << j["model_type"];
    EXPECT_EQ(again.latent, config.latent) << j["model_type"];
    EXPECT_EQ(again.ffn, config.ffn) << j["model_type"];
    EXPECT_EQ(again.score_factor, config.score_factor) << j["model_type"];
    EXPECT_EQ(again.frequencies, config.frequencies) << j["model_type"];
    EXPECT_EQ(again.experts.rule, config.experts.rule) << j["model_type"];
    EXPECT_EQ(again.experts.layers, config.experts.layers) << j["model_type"];
    EXPECT_EQ(again.rotary_interleaved, config.rotary_interleaved) << j["model_type"];
    EXPECT_EQ(again.conv_bias, config.conv_bias) << j["model_type"];
  }
}

TEST(HfMixersTest, LayersWithoutAListFollowTheFamilysRule) {
  using enum Mixer;
  EXPECT_THAT(with_derived_sizes(read(qwen3_5())).mixers, ElementsAre(delta, delta, delta, attention));
  json every = qwen3_5();
  every["full_attention_interval"] = 2;
  EXPECT_THAT(with_derived_sizes(read(every)).mixers, ElementsAre(delta, attention, delta, attention));
  EXPECT_THAT(read(lfm2()).mixers, ElementsAre(attention, attention, attention));
  json some = lfm2();
  some["full_attn_idxs"] = {1};
  EXPECT_THAT(read(some).mixers, ElementsAre(short_conv, attention, short_conv));
}

// transformers rounds twice: to whole numbers, and up to a multiple.
TEST(HfMixersTest, Lfm2sWidthIsAdjusted) {
  EXPECT_EQ(read(lfm2()).ffn, 256);  // 66 of 100, up to a multiple of 256
  json j = lfm2();
  j.update({{"block_multiple_of", 16}, {"block_ffn_dim_multiplier", 1.25}});
  EXPECT_EQ(read(j).ffn, 96);  // 82
  j["block_ffn_dim_multiplier"] = nullptr;
  EXPECT_EQ(read(j).ffn, 66);
  j["block_auto_adjust_ff_dim"] = false;
  EXPECT_EQ(read(j).ffn, 100);
}

TEST(HfMixersTest, LatentNormsHaveAnEpsOfTheirOwn) {
  json j = deepseek("deepseek_v3");
  j["rms_norm_eps"] = 1e-3;
  j["n_group"] = j["topk_group"] = 1;
  DecoderConfig config = read(j);
  config.seq = 8;
  const Program program = must(record_decoder(config, 1, DecoderHead::logits));
  int own = 0, others = 0;
  for (const Instr& instr : program.code) {
    if (instr.op != Op::rmsnorm) continue;
    const bool latent = program.value(instr.in[1]).name.find("_down_norm") != std::string::npos;
    EXPECT_EQ(instr.attrs.as<RmsnormAttrs>().eps, latent ? 1e-6f : 1e-3f);
    ++(latent ? own : others);
  }
  EXPECT_EQ(own, 6);
  EXPECT_EQ(others, 7);
}

TEST(HfMixersTest, QueriesWithoutARankAreMadeOfTheRow) {
  json j = deepseek("deepseek_v3");
  EXPECT_EQ(read(j).latent.q_rank, 1536) << "transformers' default";
  j["q_lora_rank"] = nullptr;
  EXPECT_EQ(read(j).latent.q_rank, 0);
}

TEST(HfMixersTest, DeepSeekV2RenormalizesNothingAndHasGroupsByMethodAlone) {
  json j = deepseek("deepseek_v2");
  j.update({{"norm_topk_prob", true}, {"n_group", 4}, {"topk_group", 2}});
  EXPECT_FALSE(read(j).experts.rule.renormalize);
  EXPECT_EQ(read(j).experts.rule.groups, 1);
  j["topk_method"] = "group_limited_greedy";
  EXPECT_EQ(read(j).experts.rule.groups, 4);
  EXPECT_TRUE(read(j).experts.rule.by_best);
}

// In DeepSeek-V3.2 and GLM-5 an index selects the keys of a query: all of them in short sequences.
TEST(HfMixersTest, ModelsWithAnIndexAreThoseWithoutInShortSequences) {
  json j = deepseek("deepseek_v32");
  j.update({{"index_topk", 16}, {"mlp_layer_types", {"dense", "dense", "sparse"}}});
  DecoderConfig config = read(j);
  EXPECT_EQ(config.family, "deepseek_v3");
  EXPECT_EQ(config.experts.dense_layers, 2);
  EXPECT_EQ(longest_sequence(config), 16);
  config.seq = 16;
  EXPECT_TRUE(validate(config).is_ok());
  config.seq = 17;
  EXPECT_THAT(std::string(validate(config).message()),
              HasSubstr("model.seq is 17; the index of the model selects 16 keys"));
  j = deepseek("glm_moe_dsa");
  for (const char* const key : {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) j.erase(key);
  config = read(j);
  EXPECT_EQ(config.family, "glm4_moe_lite");
  EXPECT_EQ(config.latent.selects, 2048) << "transformers' default";
  EXPECT_EQ(config.latent.plain, 192);
  EXPECT_EQ(config.latent.value, 256);
  EXPECT_EQ(config.experts.dense_layers, 3);
}

TEST(HfMixersTest, KimiK2IsDeepSeekV3ByAnotherName) {
  json j = deepseek("deepseek_v3"), kimi = j;
  kimi["model_type"] = "kimi_k2";
  EXPECT_EQ(read(kimi), read(j));
}

TEST(HfMixersTest, YarnsFactorOfScoresIsThatOfAllDimensions) {
  json j = deepseek("deepseek_v3");
  j["rope_scaling"] = {{"rope_type", "yarn"},
                       {"factor", 40.0},
                       {"mscale", 1.0},
                       {"mscale_all_dim", 1.0},
                       {"original_max_position_embeddings", 4096}};
  const DecoderConfig config = read(j);
  const double m = 0.1 * std::log(40.0) + 1;
  EXPECT_NEAR(static_cast<double>(config.score_factor), m * m / std::sqrt(20.0), 1e-6);
  EXPECT_EQ(config.frequencies.attention_factor, 1);
}

TEST(HfMixersTest, WhatIsNotComputedIsRefusedByName) {
  json j = qwen3_5();
  j["layer_types"] = {"linear_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(refused(j), HasSubstr("layer_types has \"sliding_attention\", which is not supported"));
  j["layer_types"] = {"linear_attention"};
  EXPECT_THAT(refused(j), HasSubstr("layer_types is not a list of 4"));
  j = qwen3_5();
  j["attn_output_gate"] = false;
  EXPECT_THAT(refused(j), HasSubstr("attn_output_gate is false"));
  j = qwen3_5();
  j["linear_num_value_heads"] = 5;
  EXPECT_THAT(refused(j), HasSubstr("5 heads of values and 2 of keys"));
  j["linear_num_value_heads"] = 0;
  EXPECT_THAT(refused(j), HasSubstr("linear_num_value_heads is 0"));
  j = qwen3_5();
  j["linear_conv_kernel_dim"] = 9;
  EXPECT_THAT(refused(j), HasSubstr("has 9 taps; it must have 2 to 8"));
  j = lfm2();
  j["full_attn_idxs"] = {3};
  EXPECT_THAT(refused(j), HasSubstr("full_attn_idxs has 3, and the model 3 layers"));
  j = deepseek("deepseek_v2");
  j["topk_method"] = "noaux_tc";
  EXPECT_THAT(refused(j), HasSubstr("topk_method is noaux_tc"));
  j = deepseek("glm4_moe_lite");
  j["mlp_layer_types"] = {"sparse", "dense", "sparse"};
  EXPECT_THAT(refused(j), HasSubstr("mlp_layer_types has \"dense\" at layer 1"));
  j = deepseek("deepseek_v3");
  j["v_head_dim"] = 21;
  EXPECT_THAT(refused(j), HasSubstr("heads of latent attention have 12 and 8 elements, and values of 21"));
}

TEST(HfMixersTest, RowsOfQwen3NextComeBackFromTheirHeads) {
  const DecoderConfig config = with_derived_sizes(test::small_decoder("qwen3_next"));
  for (const HfTensor& tensor : hf_tensors(config)) {
    if (!is_by_head(tensor.layout)) continue;
    const auto n = static_cast<std::size_t>(tensor.n_elems());
    std::vector<float> file(n), param(n, -1), back(n);
    for (std::size_t i = 0; i < n; ++i) file[i] = static_cast<float>(i);
    scatter_hf(tensor, config, 0, file, param);
    gather_hf(tensor, config, 0, param, back);
    EXPECT_EQ(back, file) << tensor.name;
    EXPECT_NE(param, file) << tensor.name;
  }
}

}  // namespace
}  // namespace strata
