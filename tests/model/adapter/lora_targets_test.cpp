// Which modules have an adapter, as PEFT's check_target_module_exists() and get_pattern_key() choose them.
#include <functional>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/peft_folder.h>

#include "model/adapter/small_decoder.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const DecoderConfig& llama() {
  static const DecoderConfig config = test::small_decoder("llama");
  return config;
}

std::vector<std::string> chosen(const LoraSettings& settings) {
  std::vector<std::string> names;
  for (const LoraTarget& target : must(lora_targets(llama(), settings))) names.push_back(target.module);
  return names;
}

std::string refusal(const LoraSettings& settings) {
  return std::string(lora_targets(llama(), settings).status().message());
}

TEST(LoraTargetNamesTest, ARegularExpressionMatchesWholeNames) {
  EXPECT_THAT(chosen({.targets = {R"(model\.layers\.[1-9]\..*\.(q|up)_proj)"}}),
              ElementsAre("model.layers.1.self_attn.q_proj", "model.layers.1.mlp.up_proj"));
  EXPECT_THAT(refusal({.targets = {R"((q|up)_proj)"}}), HasSubstr("'(q|up)_proj' names no module"));
}

TEST(LoraTargetNamesTest, ExcludedModulesHaveNoAdapter) {
  EXPECT_THAT(
      chosen({.targets = {"q_proj", "k_proj"}, .exclude = {"layers.0.self_attn.q_proj", R"(.*1\..*k_.*)"}}),
      ElementsAre("model.layers.0.self_attn.k_proj", "model.layers.1.self_attn.q_proj"));
  EXPECT_THAT(refusal({.targets = {"q_proj"}, .exclude = {"q_proj"}}), HasSubstr("no module is left"));
  EXPECT_THAT(refusal({.targets = {"q_proj"}, .exclude = {"all-linear"}}),
              HasSubstr("exclude 'all-linear' names no module"));
  EXPECT_THAT(refusal({.targets = {"q_proj"}, .exclude = {"z_proj"}}),
              HasSubstr("exclude 'z_proj' names no module"));
}

TEST(LoraTargetNamesTest, ARouterWithABiasOfTheChoiceIsAParameter) {
  std::vector<std::string> weights;
  const LoraSettings settings = {.parameters = {"gate.weight", "experts.gate_up_proj"}};
  for (const LoraTarget& target : must(lora_targets(test::small_decoder("glm4_moe"), settings)))
    weights.push_back(target.lora.weight);
  EXPECT_THAT(weights, ElementsAre("layers.1.router.weight", "layers.1.experts_in.weight"));
}

// As PEFT does with target_parameters: the ends of names of two matrices of all experts, and of the router.
TEST(LoraTargetNamesTest, MatricesOfExpertsAreParameters) {
  const DecoderConfig mixture = test::small_decoder("qwen2_moe");
  const auto targets_of = [&](const LoraSettings& settings) {
    std::vector<std::string> names;
    for (const LoraTarget& target : must(lora_targets(mixture, settings))) names.push_back(target.module);
    return names;
  };
  const auto refused = [&](const LoraSettings& settings) {
    return std::string(lora_targets(mixture, settings).status().message());
  };
  EXPECT_THAT(targets_of({.parameters = {"experts.down_proj", "model.layers.1.mlp.experts.gate_up_proj"}}),
              ElementsAre("model.layers.0.mlp.experts.down_proj", "model.layers.1.mlp.experts.gate_up_proj",
                          "model.layers.1.mlp.experts.down_proj"));
  EXPECT_THAT(targets_of({.targets = {"q_proj"}, .parameters = {"gate.weight"}, .layers = {0}}),
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.mlp.gate.weight",
                          "model.layers.1.mlp.gate.weight"));
  const LoraTarget target = must(lora_targets(mixture, {.parameters = {"experts.down_proj"},
                                                        .rank_pattern = {{"experts.down_proj", 3}}}))
                                .front();
  EXPECT_EQ(target.lora.place, LoraPlace::experts);
  EXPECT_EQ(target.lora.weight, "layers.0.experts_out.weight");
  EXPECT_EQ(target.lora.part, (LoraPart{0, mixture.hidden, 3}));
  EXPECT_THAT(
      refused({.parameters = {"down_proj.weight"}}),
      HasSubstr("target_parameters 'down_proj.weight' names no matrix of experts or routers; they are "
                "experts.gate_up_proj, experts.down_proj and gate.weight"));
  EXPECT_THAT(refused({.dora = true, .parameters = {"experts.down_proj"}}),
              HasSubstr("target_parameters: adapters of experts and routers cannot have DoRA"));
  EXPECT_THAT(refused({.parameters = {"experts.down_proj"}, .dropout = 0.1}),
              HasSubstr("cannot have dropout"));
  EXPECT_THAT(refusal({.parameters = {"experts.down_proj"}}), HasSubstr("which the model does not have"));
}

TEST(LoraTargetNamesTest, LayersLimitWhatIsNotNamedInFull) {
  EXPECT_THAT(chosen({.targets = {"q_proj", "model.layers.0.mlp.up_proj"}, .layers = {1}}),
              ElementsAre("model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"));
  EXPECT_THAT(chosen({.targets = {LoraSettings::kAllLinear}, .layers = {0}}).size(), 7u);
  EXPECT_THAT(refusal({.targets = {"q_proj"}, .layers = {1, 2}}),
              HasSubstr("layers has 2; the model has layers 0 to 1"));
}

// Names are those of transformers' modules, which files of Nemotron-H have with another beginning.
TEST(LoraTargetNamesTest, TheProjectionBehindMambaHasAnAdapterIfItIsNamed) {
  const DecoderConfig config = test::small_decoder("nemotron_h");
  const auto names = [&](const LoraSettings& settings) {
    std::vector<std::string> modules;
    for (const LoraTarget& target : must(lora_targets(config, settings))) modules.push_back(target.module);
    return modules;
  };
  const std::vector<std::string> all = names({.targets = {LoraSettings::kAllLinear}});
  EXPECT_THAT(all, testing::Contains("model.layers.0.mixer.in_proj"));
  EXPECT_THAT(all, testing::Contains("model.layers.1.mixer.shared_experts.up_proj"));
  EXPECT_THAT(all, testing::Not(testing::Contains(HasSubstr("out_proj"))));
  EXPECT_THAT(names({.targets = {"out_proj"}}), testing::Contains("model.layers.0.mixer.out_proj"));
  EXPECT_THAT(names({.targets = {}, .parameters = {"experts.up_proj"}}),
              ElementsAre("model.layers.1.mixer.experts.up_proj", "model.layers.3.mixer.experts.up_proj"));
}

TEST(LoraTargetNamesTest, TheFirstPatternThatMatchesGivesTheRank) {
  LoraSettings settings{.rank = 2, .targets = {"q_proj", "k_proj"}};
  settings.rank_pattern = {{R"(layers\.1\..*_proj)", 3}, {"q_proj", 4}};
  std::vector<std::int64_t> ranks;
  for (const LoraTarget& target : must(lora_targets(llama(), settings)))
    ranks.push_back(target.lora.part.rank);
  EXPECT_THAT(ranks, ElementsAre(4, 2, 3, 3));
}

TEST(LoraTargetNamesTest, TheEmbeddingAndTheHeadAreNamedOrLeftOut) {
  EXPECT_THAT(chosen({.targets = {"embed_tokens", "lm_head"}}), ElementsAre("model.embed_tokens", "lm_head"));
  EXPECT_THAT(chosen({.targets = {LoraSettings::kAllLinear}}).size(), 14u);
  DecoderConfig tied = llama();
  tied.tied_head = true;
  const auto targets = must(lora_targets(tied, {.targets = {"embed_tokens", "lm_head"}}));
  for (const LoraTarget& target : targets) EXPECT_EQ(target.lora.weight, "tokens.weight");
  EXPECT_FALSE(check_can_merge(tied, LoraSettings{.targets = {"lm_head"}}).is_ok());
  EXPECT_TRUE(check_can_merge(llama(), LoraSettings{.targets = {"lm_head"}}).is_ok());
  EXPECT_THAT(refusal({.dora = true, .targets = {"lm_head"}}),
              HasSubstr("lm_head: the embedding, the head and gates cannot have adapters of DoRA"));
}

std::vector<std::string> saved(const DecoderConfig& config, const LoraSettings& settings) {
  const auto tensors = saved_tensors(config, settings);
  if (!tensors.has_value()) return {std::string(tensors.status().message())};
  std::vector<std::string> names;
  for (const HfTensor& tensor : *tensors) names.push_back(tensor.name);
  return names;
}

TEST(SavedTensorsTest, ModulesAreThoseWhoseNamesEndSo) {
  EXPECT_THAT(saved(llama(), {.save = {"1.input_layernorm", "lm_head"}}),
              ElementsAre("model.layers.1.input_layernorm.weight", "lm_head.weight"));
  EXPECT_THAT(saved(llama(), {.save = {"layers.0.mlp"}}).size(), 3u) << "a module has those in it";
  DecoderConfig tied = llama();
  tied.tied_head = true;
  EXPECT_THAT(saved(tied, {.save = {"embed_tokens"}}),
              ElementsAre(HasSubstr("which the model ties to its head")));
  EXPECT_THAT(saved(tied, {.save = {"lm_head"}}), ElementsAre(HasSubstr("ties to its embedding")));
  EXPECT_THAT(
      saved(llama(), {.save = {"lm_heat"}}),
      ElementsAre(HasSubstr("modules_to_save has 'lm_heat', which no module of the model ends with")));
  EXPECT_THAT(saved(llama(), {.save = {".*norm"}}), ElementsAre(HasSubstr("not regular expressions")));
  EXPECT_THAT(without_absent(llama(), {.save = {"lm_heat", "norm"}}).save, ElementsAre("norm"));
}

// PEFT cannot read folders in which a module is saved and within another one, or has an adapter.
TEST(SavedTensorsTest, ModulesThatOverlapAreRefusedWithBothNames) {
  EXPECT_THAT(
      saved(llama(), {.targets = {"q_proj"}, .save = {"attn"}}),
      ElementsAre(AllOf(HasSubstr("modules_to_save has 'attn', which names model.layers.0.self_attn, and "
                                  "model.layers.0.self_attn.q_proj has an adapter"))));
  EXPECT_THAT(saved(llama(), {.targets = {"q_proj", "lm_head"}, .save = {"head"}}),
              ElementsAre(HasSubstr("'head', which names lm_head, and lm_head has an adapter")));
  EXPECT_THAT(saved(llama(), {.targets = {"layers.0.self_attn.q_proj"}, .save = {"layers.1", "norm"}}),
              ElementsAre(HasSubstr("'layers.1', which names model.layers.1, and 'norm', which names "
                                    "model.layers.1.input_layernorm within it")));
  EXPECT_THAT(saved(llama(), {.targets = {"q_proj"}, .save = {"self_attn"}}).size(), 1u)
      << "no module is left";
}

TEST(SavedTensorsTest, AModuleThatIsSavedHasNoAdapter) {
  EXPECT_THAT(chosen({.targets = {"q_proj", "up_proj"}, .layers = {0}, .save = {"layers.0.mlp"}}),
              ElementsAre("model.layers.0.self_attn.q_proj"));
}

TEST(SavedTensorsTest, BiasesAreThoseOfAdaptersOrAll) {
  using enum LoraSettings::Bias;
  const DecoderConfig gpt2 = test::small_decoder("gpt2"), qwen = test::small_decoder("qwen2");
  EXPECT_THAT(saved(gpt2, {.targets = {"h.0.attn.c_attn"}, .bias = lora_only}),
              ElementsAre("transformer.h.0.attn.c_attn.bias"));
  EXPECT_THAT(saved(gpt2, {.bias = all}).size(), 2u * 6u + 1u);
  EXPECT_THAT(saved(qwen, {.targets = {"q_proj", "k_proj", "v_proj"}, .bias = lora_only}).size(), 6u);
  EXPECT_THAT(saved(qwen, {.targets = {"q_proj"}, .bias = lora_only}),
              ElementsAre(HasSubstr(
                  "q_proj.bias is stored as one parameter with model.layers.0.self_attn.k_proj.bias")));
}

class PeftNamesTest : public ::testing::Test {
 protected:
  /// The modules of a folder that PEFT would write with these settings.
  std::vector<std::string> read(const std::vector<std::string>& modules,
                                const std::function<void(json&)>& change) {
    must(posix_io().remove_all(path));
    must(export_peft(posix_io(), path, llama(), LoraSettings{.rank = 2, .targets = modules}, "",
                     [](std::string_view, std::span<float> into) {
                       std::fill(into.begin(), into.end(), 1.0f);
                       return Status::ok();
                     }));
    const std::string file = path + "/adapter_config.json";
    json root = json::parse(must(read_text(posix_io(), file, 1 << 20)));
    change(root);
    must(write_text_atomically(posix_io(), file, root.dump()));
    auto folder = PeftFolder::open(posix_io(), path, llama());
    if (!folder.has_value()) return {std::string(folder.status().message())};
    std::vector<std::string> names;
    for (const LoraTarget& target : (*folder)->targets()) names.push_back(target.module);
    return names;
  }

  const test::TempDir dir;
  const std::string path = dir.file("adapter");
};

constexpr const char* kQuery0 = "model.layers.0.self_attn.q_proj";

TEST_F(PeftNamesTest, ATextIsARegularExpressionOfWholeNames) {
  EXPECT_THAT(read({kQuery0}, [](json& root) { root["target_modules"] = R"(.*\.0\..*\.q_proj)"; }),
              ElementsAre(kQuery0));
  EXPECT_THAT(read({kQuery0}, [](json& root) { root["target_modules"] = kQuery0; }), ElementsAre(kQuery0));
  EXPECT_THAT(read({"q_proj"}, [](json& root) { root["target_modules"] = "q_proj"; }),
              ElementsAre(HasSubstr("target_modules '^q_proj' names no module")));
}

TEST_F(PeftNamesTest, ExcludedModulesHaveNoTensors) {
  const auto exclude = [](const json& names) {
    return [names](json& root) { root["target_modules"] = {"q_proj"}, root["exclude_modules"] = names; };
  };
  EXPECT_THAT(read({kQuery0}, exclude({"layers.1.self_attn.q_proj"})), ElementsAre(kQuery0));
  EXPECT_THAT(read({kQuery0}, exclude(R"(.*layers\.1\..*)")), ElementsAre(kQuery0));
}

// The names are those of PEFT's get_peft_model_state_dict().
TEST_F(PeftNamesTest, TablesModulesAndBiasesAreWrittenUnderPeftsNames) {
  const DecoderConfig gpt2 = test::small_decoder("gpt2");
  const LoraSettings settings{
      .rank = 2, .targets = {"c_attn", "wte", "lm_head"}, .save = {"ln_f"}, .bias = LoraSettings::Bias::all};
  must(export_peft(posix_io(), path, gpt2, settings, "", [](std::string_view, std::span<float> into) {
    std::iota(into.begin(), into.end(), 1.0f);
    return Status::ok();
  }));
  const auto file = must(SafetensorsFile::open(posix_io(), path + "/adapter_model.safetensors"));
  for (const auto& [name, shape] : std::map<std::string, std::vector<std::uint64_t>>{
           {"transformer.wte.lora_embedding_A", {2, 30}},
           {"transformer.wte.lora_embedding_B", {16, 2}},
           {"lm_head.lora_A.weight", {2, 16}},
           {"lm_head.lora_B.weight", {30, 2}},
           {"transformer.ln_f.weight", {16}},
           {"transformer.ln_f.bias", {16}},
           {"transformer.h.0.attn.c_attn.base_layer.bias", {48}},
           {"transformer.h.0.ln_1.bias", {16}}}) {
    const SafetensorsEntry* const entry = file->find("base_model.model." + name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->shape, shape) << name;
  }
  std::vector<float> a(60);
  must(file->read("base_model.model.transformer.wte.lora_embedding_A", std::as_writable_bytes(std::span(a))));
  EXPECT_EQ(a[1], 3.0f) << "PEFT has a column for each token";
  const auto folder = must(PeftFolder::open(posix_io(), path, gpt2));
  EXPECT_EQ(must(are_same_adapter(gpt2, folder->settings(), settings)), true);
}

TEST_F(PeftNamesTest, NamesOfOtherModelsAreIgnoredBesideOneOfThis) {
  EXPECT_THAT(read({"q_proj"},
                   [](json& root) {
                     root["target_modules"] = {"q_proj", "c_attn"};
                     root["rank_pattern"] = {{"c_attn", 7}};
                   }),
              testing::SizeIs(2));
  EXPECT_THAT(read({"q_proj"}, [](json& root) { root["target_modules"] = {"c_attn"}; }),
              ElementsAre(HasSubstr("target_modules 'c_attn' names no module")));
}

TEST_F(PeftNamesTest, WhatPeftWouldTakeForANameOrRefuseIsRefused) {
  EXPECT_THAT(
      read({"q_proj"}, [](json& root) { root["target_modules"] = {".*q_proj"}; }),
      ElementsAre(HasSubstr("target_modules has \".*q_proj\" in a list, which PEFT takes for a name")));
  EXPECT_THAT(
      read({"q_proj"},
           [](json& root) { root["target_modules"] = ".*q_proj", root["layers_to_transform"] = 0; }),
      ElementsAre(HasSubstr("layers_to_transform is 0, which PEFT takes with target_modules as a list")));
  EXPECT_THAT(
      read({"q_proj"},
           [](json& root) {
             root["rank_pattern"] = {{"(?i)Q_proj", 3}};
           }),
      ElementsAre(HasSubstr("rank_pattern '(?i)Q_proj' has a group of a kind that strata does not have")));
}

}  // namespace
}  // namespace strata
