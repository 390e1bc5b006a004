// Tests the meaning of a config.json where transformers has two places for a value, and what is refused of
// it.
#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/hf/config.h>

namespace strata {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

json of_family(const std::string& family) {
  if (family == "bloom")
    return {{"model_type", "bloom"}, {"n_layer", 1}, {"hidden_size", 8}, {"n_head", 2}, {"vocab_size", 5}};
  return {{"model_type", family},     {"num_hidden_layers", 1},   {"hidden_size", 32},
          {"num_attention_heads", 2}, {"num_key_value_heads", 2}, {"head_dim", 16},
          {"intermediate_size", 8},   {"vocab_size", 5},          {"max_position_embeddings", 64}};
}
Result<DecoderConfig> read(const std::string& family, const json& more) {
  json config = of_family(family);
  config.update(more);
  return decoder_from_hf_config(config.dump());
}
std::string refusal(const std::string& family, const json& more) {
  const auto config = read(family, more);
  EXPECT_FALSE(config.has_value());
  return std::string(config.status().message());
}

const json kLinear = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 500.0}};
const json kYarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};

TEST(HfConfigPlacesTest, RopeScalingIsReadAloneIfThereAreBoth) {
  const DecoderConfig both = must(read("llama", {{"rope_theta", 700.0},
                                                 {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                                                 {"rope_parameters", kYarn}}));
  EXPECT_EQ(both.frequencies.scaling, RopeFrequencies::Scaling::linear);
  EXPECT_EQ(both.frequencies.factor, 8);
  EXPECT_EQ(both.frequencies.theta, 700);
  const DecoderConfig empty =
      must(read("llama", {{"rope_scaling", json::object()}, {"rope_parameters", kLinear}}));
  EXPECT_EQ(empty.frequencies.factor, 2);
  EXPECT_EQ(empty.frequencies.theta, 500);
}

TEST(HfConfigPlacesTest, InGemma3RopeScalingReplacesKeysOfTheFullLayers) {
  const json full = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 900.0}};
  const DecoderConfig both = must(
      read("gemma3_text", {{"rope_scaling", {{"factor", 8.0}}},
                           {"rope_parameters", {{"full_attention", full}, {"sliding_attention", nullptr}}}}));
  EXPECT_EQ(both.frequencies.factor, 8);
  EXPECT_EQ(both.frequencies.theta, 900);
  // transformers merges into {"rope_type": "default"}, so that the older spelling has no effect.
  const DecoderConfig older =
      must(read("gemma3_text", {{"rope_scaling", {{"type", "linear"}, {"factor", 8.0}}}}));
  EXPECT_EQ(older.frequencies.scaling, RopeFrequencies::Scaling::none);
  EXPECT_THAT(refusal("gemma3_text", {{"rope_parameters", kLinear}}),
              AllOf(HasSubstr("rope_parameters.factor is 2"), HasSubstr("of no kind of layers")));
}

TEST(HfConfigPlacesTest, OriginalPositionsBesideTheSectionCount) {
  EXPECT_EQ(must(read("llama", {{"rope_scaling", kYarn}})).frequencies.original_positions, 32);
  EXPECT_EQ(must(read("llama", {{"rope_scaling", kYarn}, {"original_max_position_embeddings", 16}}))
                .frequencies.original_positions,
            16);
  json without = kYarn;
  without.erase("original_max_position_embeddings");
  EXPECT_EQ(must(read("llama", {{"rope_scaling", without}})).frequencies.original_positions, 64);
}

TEST(HfConfigPlacesTest, RotatedSharesAreReadWhereverTheyAre) {
  EXPECT_EQ(must(read("glm", {{"partial_rotary_factor", 0.75}})).rotary_dim, 12);
  for (const char* section : {"rope_scaling", "rope_parameters"}) {
    const json given = {{"partial_rotary_factor", 0.5}, {section, {{"partial_rotary_factor", 0.25}}}};
    EXPECT_EQ(must(read("glm", given)).rotary_dim, 4) << section;
  }
  EXPECT_THAT(refusal("llama", {{"rope_parameters", {{"partial_rotary_factor", 0.25}}}}),
              HasSubstr("rope_parameters.partial_rotary_factor is 0.25"));
  EXPECT_THAT(refusal("glm", {{"partial_rotary_factor", 0.2}}),
              HasSubstr("partial_rotary_factor is 0.2, by which 3 of 16 elements of a head turn"));
}

TEST(HfConfigPlacesTest, AnUnknownScalingIsNamedWithItsPlaceAndSpelling) {
  EXPECT_THAT(refusal("llama", {{"rope_parameters", {{"rope_type", "dynamic"}}}}),
              HasSubstr("rope_parameters.rope_type is dynamic"));
  EXPECT_THAT(refusal("llama", {{"rope_scaling", {{"type", "longrope"}}}}),
              HasSubstr("rope_scaling.type is longrope"));
  EXPECT_THAT(
      refusal("gemma3_text", {{"rope_parameters", {{"sliding_attention", {{"rope_type", "longrope"}}}}}}),
      HasSubstr("rope_parameters.sliding_attention.rope_type is longrope"));
  EXPECT_THAT(refusal("llama", {{"rope_scaling", {{"rope_type", "linear"}}}}),
              HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(refusal("qwen3", {{"rope_parameters", {{"full_attention", kLinear}}}}),
              HasSubstr("all layers of qwen3 have the same"));
}

TEST(HfConfigPlacesTest, GemmasReadTheirOwnKeyOfTheActivation) {
  EXPECT_TRUE(
      read("gemma2", {{"hidden_act", "gelu"}, {"hidden_activation", "gelu_pytorch_tanh"}}).has_value());
  EXPECT_THAT(refusal("gemma2", {{"hidden_act", "gelu_pytorch_tanh"}, {"hidden_activation", "relu"}}),
              HasSubstr("hidden_activation is relu"));
  EXPECT_TRUE(read("llama", {{"hidden_act", "silu"}, {"hidden_activation", "relu"}}).has_value());
}

TEST(HfConfigPlacesTest, WrongLayersWithoutRopeAreRefusedAlsoIfTheySlide) {
  const json slides = {{"use_sliding_window", true}, {"sliding_window", 4}};
  for (const json& wrong :
       {json{{"no_rope_layer_interval", 0}}, json{{"no_rope_layers", 3}}, json{{"no_rope_layers", {"a"}}}}) {
    json both = slides;
    both.update(wrong);
    EXPECT_THAT(refusal("smollm3", both), HasSubstr(wrong.begin().key()));
  }
}

TEST(HfConfigPlacesTest, DefaultsAreThoseOfTheConfigurationsClass) {
  EXPECT_EQ(must(read("glm4", json::object())).norm_eps, 1.5625e-7f);
  EXPECT_EQ(must(read("glm4", {{"rms_norm_eps", 1e-5}})).norm_eps, 1e-5f);
  const DecoderConfig granite = must(read("granite", {{"residual_multiplier", 0.22}}));
  EXPECT_EQ(granite.residual_factor, 0.22f);
  EXPECT_EQ(granite.score_factor, 1);
  EXPECT_THAT(refusal("granite", {{"logits_scaling", 0}}), HasSubstr("logits_scaling is 0"));
}

TEST(HfConfigPlacesTest, InOlmo3OnlyLayersThatSeeAllKeysHaveAScaledRope) {
  const json full = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const DecoderConfig older =
      must(read("olmo3", {{"num_hidden_layers", 4}, {"rope_theta", 700.0}, {"rope_scaling", full}}));
  EXPECT_EQ(older.frequencies.theta, 700);
  EXPECT_EQ(older.sliding_frequencies->theta, 5e5f) << "as in transformers";
  EXPECT_EQ(older.sliding_frequencies->scaling, RopeFrequencies::Scaling::none);
  EXPECT_EQ(older.frequencies.scaling, RopeFrequencies::Scaling::yarn);
  EXPECT_EQ(older.window, 4096);
  EXPECT_EQ(with_derived_sizes(older).sliding, (std::vector<bool>{true, true, true, false}));
  const json nested = {{"full_attention", full}, {"sliding_attention", {{"rope_theta", 900.0}}}};
  EXPECT_EQ(must(read("olmo3", {{"rope_parameters", nested}})).sliding_frequencies->theta, 900);
  EXPECT_EQ(must(read("olmo3", {{"rope_parameters", nested}})).frequencies.theta, 5e5f);
}

TEST(HfConfigPlacesTest, InExaone4LayersWithoutAWindowHaveNoRopeWhereOthersSlide) {
  const DecoderConfig hybrid =
      must(read("exaone4", {{"num_hidden_layers", 4}, {"sliding_window", 8}, {"sliding_window_pattern", 2}}));
  EXPECT_EQ(with_derived_sizes(hybrid).rope_layers, (std::vector<bool>{true, false, true, false}));
  const json types = {"full_attention", "sliding_attention"};
  EXPECT_EQ(must(read("exaone4", {{"num_hidden_layers", 2}, {"layer_types", types}})).rope_layers,
            (std::vector<bool>{false, true}));
  const DecoderConfig whole = must(read("exaone4", {{"sliding_window", nullptr}}));
  EXPECT_EQ(whole.rope_layers, std::vector<bool>{true});
  EXPECT_EQ(whole.window, 0);
  EXPECT_THAT(refusal("exaone4", {{"sliding_window_pattern", "LLLG"}}), HasSubstr("sliding_window_pattern"));
  EXPECT_THAT(refusal("exaone4", {{"sliding_window_pattern", 0}}), HasSubstr("sliding_window_pattern is 0"));
}

TEST(HfConfigPlacesTest, HunyuansAlphaStretchesTheBase) {
  const json dynamic = {{"type", "dynamic"}, {"alpha", 1000.0}, {"rope_theta", 1e4}};
  EXPECT_NEAR(must(read("hunyuan_v1_dense", {{"rope_scaling", dynamic}})).frequencies.theta,
              1e4 * std::pow(1000.0, 16.0 / 14), 1e4);
  EXPECT_TRUE(must(read("hunyuan_v1_dense", json::object())).qk_norm_after_rope);
  EXPECT_THAT(refusal("hunyuan_v1_dense", {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}),
              HasSubstr("rope_scaling.type is dynamic"));
  EXPECT_THAT(refusal("llama", {{"rope_scaling", dynamic}}), HasSubstr("rope_scaling.type is dynamic"));
}

TEST(HfConfigPlacesTest, QueriesOfMinistral3DoNotGrowWithinTheOriginalPositions) {
  json parameters = kYarn;
  parameters.update({{"llama_4_scaling_beta", 0.1}, {"rope_theta", 1e6}});
  DecoderConfig config = must(read("ministral3", {{"rope_parameters", parameters}}));
  config.seq = 32;
  EXPECT_TRUE(validate(config).is_ok());
  config.seq = 33;
  EXPECT_THAT(std::string(validate(config).message()),
              HasSubstr("model.seq is 33; the queries of Ministral 3 grow from position 32 on"));
  const json written = json::parse(hf_config_json(config, DType::f32, "{}"))["rope_parameters"];
  EXPECT_EQ(written["llama_4_scaling_beta"], 0.1);
  EXPECT_EQ(written["original_max_position_embeddings"], 32);
  EXPECT_EQ(must(read("ministral3", json::object())).query_growth_from, 16384);
  EXPECT_THAT(refusal("ministral3", {{"rope_parameters", kYarn}}), HasSubstr("llama_4_scaling_beta"));
}

TEST(HfConfigPlacesTest, SeedOssHasAKeyForEachBiasOfAttention) {
  const DecoderConfig usual = must(read("seed_oss", json::object()));
  EXPECT_TRUE(usual.qkv_bias && !usual.out_bias && !usual.mlp_bias);
  const DecoderConfig other =
      must(read("seed_oss", {{"attention_bias", false}, {"attention_out_bias", true}}));
  EXPECT_TRUE(!other.qkv_bias && other.out_bias);
}

TEST(HfConfigPlacesTest, BloomLosesBiasesInTransformersIfItIsSlowButExactInParts) {
  EXPECT_TRUE(read("bloom", {{"slow_but_exact", true}}).has_value());
  EXPECT_TRUE(read("bloom", {{"pretraining_tp", 2}}).has_value());
  EXPECT_THAT(refusal("bloom", {{"slow_but_exact", true}, {"pretraining_tp", 2}}),
              HasSubstr("slow_but_exact is true with a pretraining_tp of 2"));
  EXPECT_EQ(must(read("bloom", {{"n_embed", 16}})).hidden, 16);
  EXPECT_TRUE(read("llama", {{"pretraining_tp", 2}}).has_value());
}

}  // namespace
}  // namespace strata
