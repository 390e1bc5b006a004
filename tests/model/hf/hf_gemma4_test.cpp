// Folders and configurations of Gemma 4.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/folder.h>

#include "model/hf/damaged_folder.h"

namespace strata {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json gemma4_keys() {
  return {{"model_type", "gemma4_text"},
          {"vocab_size", 31},
          {"hidden_size", 32},
          {"intermediate_size", 40},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"max_position_embeddings", 64},
          {"sliding_window", 4},
          {"layer_types", {"sliding_attention", "full_attention", "full_attention"}},
          {"hidden_size_per_layer_input", 0},
          {"global_head_dim", 16},
          {"num_global_key_value_heads", 1},
          {"attention_k_eq_v", true}};
}
json gemma4_with(json j, const json& more) {
  j.update(more);
  return j;
}
DecoderConfig gemma4_read(const json& j) {
  return with_derived_sizes(must(decoder_from_hf_config(j.dump())));
}
std::string gemma4_refused(const json& j) {
  return std::string(decoder_from_hf_config(j.dump()).status().message());
}

TEST(HfGemma4Test, HeadsOfFullLayersAreReadFromEitherPlace) {
  const auto full = [](const json& j) { return *gemma4_read(j).full_heads; };
  const FullHeads want = {.head_dim = 16, .kv_heads = 1, .keys_as_values = true, .rotary_share = 0.25};
  EXPECT_EQ(full(gemma4_keys()), want);
  const json by_layer = {{"1", {{"head_dim", 16}, {"num_key_value_heads", 1}}},
                         {"2", {{"num_key_value_heads", 1}, {"head_dim", 16}}}};
  EXPECT_EQ(full(gemma4_with(gemma4_keys(), {{"per_layer_config", by_layer},
                                             {"global_head_dim", 24},
                                             {"num_global_key_value_heads", 4}})),
            want);
  json plain = gemma4_keys();
  plain["attention_k_eq_v"] = false;
  EXPECT_EQ(full(plain).kv_heads, 2) << "num_global_key_value_heads has no effect";
  plain.erase("global_head_dim");
  EXPECT_EQ(full(plain).head_dim, 512);
}

TEST(HfGemma4Test, PerLayerConfigsThatDifferAreRefused) {
  const auto of = [](const json& layers) {
    return gemma4_refused(gemma4_with(gemma4_keys(), {{"per_layer_config", layers}}));
  };
  const json one = {{"head_dim", 16}, {"num_key_value_heads", 1}};
  EXPECT_THAT(of({{"1", one}, {"2", {{"head_dim", 24}, {"num_key_value_heads", 1}}}}),
              HasSubstr("per_layer_config.2. has 1 heads of 24 and the layer before it 1 of 16"));
  EXPECT_THAT(of({{"0", one}, {"1", one}, {"2", one}}), HasSubstr("layer 0, which has a sliding window"));
  EXPECT_THAT(of({{"1", one}, {"2", one}, {"7", one}}), HasSubstr("3 layers, 2 of which are among the 3"));
  EXPECT_THAT(of({{"1", gemma4_with(one, {{"rope_theta", 3}})}, {"2", one}}), HasSubstr("1.rope_theta is 3"));
}

TEST(HfGemma4Test, TheLastLayerSeesAllKeys) {
  json j = gemma4_keys();
  j["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_THAT(gemma4_read(j).sliding, ElementsAre(true, false, false));
  j.erase("layer_types");
  j["num_hidden_layers"] = 8;
  EXPECT_THAT(gemma4_read(j).sliding, ElementsAre(true, true, true, true, true, false, true, false));
}

TEST(HfGemma4Test, WhatAConfigSaysComesBackFromItsOwn) {
  const json ropes = {{"full_attention",
                       {{"rope_type", "proportional"},
                        {"rope_theta", 900.0},
                        {"partial_rotary_factor", 0.3},
                        {"factor", 2.0}}},
                      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 700.0}}}};
  const json all_turn = {{"full_attention", {{"rope_theta", 900.0}}}, {"sliding_attention", json::object()}};
  const json by_layer = {{"1", {{"head_dim", 24}}}, {"2", {{"head_dim", 24}}}};
  const json experts = {{"enable_moe_block", true},
                        {"num_experts", 6},
                        {"top_k_experts", 3},
                        {"moe_intermediate_size", 24},
                        {"final_logit_softcapping", 7.5}};
  for (const json& more :
       {json::object(), json{{"rope_parameters", ropes}}, json{{"rope_parameters", all_turn}},
        json{{"per_layer_config", by_layer}, {"attention_k_eq_v", false}}, experts}) {
    const json j = gemma4_with(gemma4_keys(), more);
    DecoderConfig config = gemma4_read(j);
    config.seq = 8;
    const std::string written = hf_config_json(config, DType::f32, j.dump());
    DecoderConfig again = gemma4_read(json::parse(written));
    again.seq = 8;
    EXPECT_EQ(again, config) << written;
  }
}

TEST(HfGemma4Test, WhatIsComputedInAnotherWayIsRefusedByItsKey) {
  json none = gemma4_keys();
  none.erase("hidden_size_per_layer_input");
  EXPECT_THAT(gemma4_refused(none), HasSubstr("hidden_size_per_layer_input is 256 without the key"));
  const std::pair<json, const char*> cases[] = {
      {{{"hidden_size_per_layer_input", 128}}, "hidden_size_per_layer_input is 128, which"},
      {{{"num_kv_shared_layers", 2}}, "num_kv_shared_layers is 2"},
      {{{"use_double_wide_mlp", true}}, "use_double_wide_mlp is true"},
      {{{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention is \"all\""},
      {{{"sliding_window", 0}}, "sliding_window is 0"},
      {{{"layer_types", {"full_attention", "linear_attention", "full_attention"}}}, "\"linear_attention\""},
      {{{"rope_parameters", {{"full_attention", json::object()}}}},
       "rope_parameters.sliding_attention is missing"},
      {{{"rope_parameters",
         {{"full_attention", {{"rope_type", "yarn"}}}, {"sliding_attention", json::object()}}}},
       "rope_parameters.full_attention.rope_type is yarn"},
      {{{"rope_parameters",
         {{"full_attention", json::object()}, {"sliding_attention", {{"rope_type", "proportional"}}}}}},
       "rope_parameters.sliding_attention.rope_type is proportional"},
      {{{"enable_moe_block", true}, {"num_experts", 0}, {"top_k_experts", 1}, {"moe_intermediate_size", 8}},
       "num_experts of 0"}};
  for (const auto& [more, message] : cases)
    EXPECT_THAT(gemma4_refused(gemma4_with(gemma4_keys(), more)), HasSubstr(message));
  const json images = gemma4_with(gemma4_keys(), {{"use_bidirectional_attention", "vision"}});
  EXPECT_TRUE(decoder_from_hf_config(images.dump()).has_value());
}

// transformers' proportional RoPE turns pairs of the whole head, and leaves the last ones as they are.
TEST(HfGemma4Test, EachKindOfLayersHasItsTableOfAngles) {
  DecoderConfig config = gemma4_read(gemma4_keys());
  config.seq = 8;
  std::vector<std::pair<int, int>> tables;
  for (const Instr& instr : must(record_decoder(config, 1, DecoderHead::logits)).code)
    if (instr.op == Op::rope_table)
      tables.emplace_back(instr.attrs.as<RopeTableAttrs>().rotary_dim,
                          instr.attrs.as<RopeTableAttrs>().frequencies.still);
  EXPECT_THAT(tables, ElementsAre(std::pair(8, 0), std::pair(16, 6)));
}

class HfGemma4FolderTest : public test::DamagedFolder {
 protected:
  HfGemma4FolderTest() : test::DamagedFolder("gemma4_text") {}
};

TEST_F(HfGemma4FolderTest, KeysAreValuesWhereAllKeysAreSeen) {
  const auto is_there = [&](const char* name) {
    const std::vector<HfTensor> tensors = hf_tensors(config);
    return std::any_of(tensors.begin(), tensors.end(), [&](const HfTensor& t) { return t.name == name; });
  };
  EXPECT_TRUE(is_there("model.layers.0.self_attn.v_proj.weight"));
  EXPECT_FALSE(is_there("model.layers.1.self_attn.v_proj.weight"));
  EXPECT_TRUE(is_there("model.layers.1.self_attn.k_proj.weight"));
  EXPECT_TRUE(is_there("model.layers.1.layer_scalar"));
  EXPECT_TRUE(is_there("model.layers.1.experts.gate_up_proj"));
}

}  // namespace
}  // namespace strata
