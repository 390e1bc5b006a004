#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/graph/passes.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/runtime/rng.h>

#include "model/adapter/small_decoder.h"
#include "support/temp_dir.h"
#include "support/experts/tiny_experts.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

DecoderConfig config_of(std::string_view family) { return test::small_decoder(family); }

std::vector<std::string> modules_of(const std::vector<LoraTarget>& targets) {
  std::vector<std::string> names;
  for (const LoraTarget& target : targets) names.push_back(target.module);
  return names;
}

std::string message(const Status& status) { return std::string(status.message()); }

/// A value of its own for each element of each parameter.
Status numbered(std::string_view param, std::span<float> into) {
  const Rng rng(std::hash<std::string_view>{}(param), 1);
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = rng.normal(i);
  return {};
}

TEST(LoraTargetsTest, WithoutTargetsQueriesAndValuesHaveAdaptersOrWhatTheyAreStoredIn) {
  EXPECT_THAT(modules_of(must(lora_targets(config_of("llama"), {}))),
              ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj",
                          "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"));
  EXPECT_THAT(modules_of(must(lora_targets(config_of("gpt2"), {}))),
              ElementsAre("transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"));
  EXPECT_THAT(modules_of(must(lora_targets(config_of("bloom"), {}))),
              ElementsAre("transformer.h.0.self_attention.query_key_value",
                          "transformer.h.1.self_attention.query_key_value"));
  EXPECT_THAT(modules_of(must(lora_targets(config_of("phi3"), {}))),
              ElementsAre("model.layers.0.self_attn.qkv_proj", "model.layers.1.self_attn.qkv_proj"));
}

TEST(LoraTargetsTest, APartOfAFusedMatrixHasItsRowsAndItsScale) {
  LoraSettings settings{.rank = 4, .alpha = 8, .targets = {"v_proj", "model.layers.1.mlp.up_proj"}};
  settings.rank_pattern = {{"up_proj", 2}};
  settings.alpha_pattern = {{"model.layers.1.mlp.up_proj", 6}};
  const auto targets = must(lora_targets(config_of("llama"), settings));
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(targets[0].lora.weight, "layers.0.qkv.weight");
  EXPECT_EQ(targets[0].lora.part, (LoraPart{16 + 8, 8, 4}));  // behind queries and keys
  EXPECT_EQ(targets[0].lora.scale, 2.0f);
  EXPECT_EQ(targets[2].lora.weight, "layers.1.mlp_in.weight");
  EXPECT_EQ(targets[2].lora.part, (LoraPart{24, 24, 2}));
  EXPECT_EQ(targets[2].lora.scale, 3.0f);
  settings.rslora = true;
  EXPECT_EQ(must(lora_targets(config_of("llama"), settings))[0].lora.scale, 4.0f);
}

TEST(LoraTargetsTest, AllLinearIsEveryMatrixOfTheBlocks) {
  for (const std::string_view family : decoder_families()) {
    const DecoderConfig config = config_of(family);
    const auto targets = must(lora_targets(config, {.rank = 2, .targets = {LoraSettings::kAllLinear}}));
    const Program program = must(record_decoder(config, 1, DecoderHead::loss));
    // Each element of each matrix that a linear layer reads has one adapter.
    std::int64_t rows = 0, wanted = 0;
    for (const LoraTarget& target : targets) rows += target.lora.part.rows;
    for (const ParamInfo& param : program.params)
      if (!param.name.ends_with(".mamba_out.weight") &&  // PEFT refuses it
          (test::is_linear_matrix(param) || param.name.ends_with(".shared_gate.weight") ||
           (config.experts.beside_dense && param.name.ends_with(".router.weight"))))
        wanted += param.shape.dim(0);
    EXPECT_EQ(rows, wanted) << family;
    EXPECT_TRUE(add_lora(program, lora_groups(targets)).has_value()) << family;
  }
}

TEST(LoraTargetsTest, AllProblemsAreReportedAtOnce) {
  LoraSettings settings{.rank = 70000, .targets = {"q_proj", "k_prj", "norm"}};
  settings.rank_pattern = {{"w", 3}};
  const Status status = lora_targets(config_of("llama"), settings).status();
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(
      message(status),
      AllOf(HasSubstr("targets 'k_prj' names no module of the model; the modules are down_proj, gate_proj, "
                      "k_proj, o_proj, q_proj, up_proj, v_proj, or all of them: all-linear; besides "
                      "embed_tokens, lm_head"),
            HasSubstr(
                "targets 'norm' is no linear layer: positions and norms cannot have adapters, experts and "
                "routers only by target_parameters"),
            HasSubstr("rank_pattern 'w' names no module"),
            HasSubstr("the rank of model.layers.1.self_attn.q_proj is 70000; its matrix [16, 16] allows 1 to "
                      "65536")));
}

class PeftFolderTest : public ::testing::Test {
 protected:
  void write(const DecoderConfig& config, const LoraSettings& settings) {
    must(io.remove_all(adapter));
    must(export_peft(io, adapter, config, settings, "base/model", numbered));
  }
  std::string get(const std::string& file) { return must(read_text(io, file, 1 << 20)); }
  void put(const std::string& file, const std::string& text) { must(write_text_atomically(io, file, text)); }
  void change(const std::function<void(nlohmann::json&)>& by) {
    nlohmann::json root = nlohmann::json::parse(get(config_file));
    by(root);
    put(config_file, root.dump());
  }
  Status opened(const DecoderConfig& config) { return PeftFolder::open(io, adapter, config).status(); }

  const test::TempDir dir;
  const std::string adapter = dir.file("adapter"), config_file = adapter + "/adapter_config.json",
                    tensors_file = adapter + "/adapter_model.safetensors";
  Io& io = posix_io();
};

TEST_F(PeftFolderTest, WhatIsWrittenIsReadBackForEveryFamily) {
  for (const std::string_view family : decoder_families()) {
    const DecoderConfig config = config_of(family);
    for (const bool dora : {false, true}) {
      const LoraSettings settings{
          .rank = 3, .alpha = 4.5, .rslora = true, .dora = dora, .targets = {LoraSettings::kAllLinear}};
      write(config, settings);
      const auto folder = must(PeftFolder::open(io, adapter, config));
      EXPECT_EQ(folder->base(), "base/model");
      EXPECT_EQ(folder->targets(), must(lora_targets(config, settings))) << family;
      EXPECT_TRUE(check_peft_export(io, adapter, config, numbered).is_ok()) << family;
    }
  }
}

TEST_F(PeftFolderTest, BloomsRowsAreInTheOrderOfItsHeads) {
  const DecoderConfig config = config_of("bloom");
  write(config, {.rank = 2});
  const auto file = must(SafetensorsFile::open(io, tensors_file));
  std::vector<float> b(48 * 2), ours(48 * 2);
  must(file->read("base_model.model.transformer.h.0.self_attention.query_key_value.lora_B.weight",
                  std::as_writable_bytes(std::span(b))));
  must(numbered("layers.0.qkv.lora_B", ours));
  // Row 4 of the file is the first key of head 0, which is row 16 of ours.
  EXPECT_EQ(b[4 * 2], ours[16 * 2]);
  EXPECT_EQ(b[5 * 2 + 1], ours[17 * 2 + 1]);
}

// PEFT writes them without ".weight".
TEST_F(PeftFolderTest, MagnitudesAreVectorsInTheOrderOfTheFilesRows) {
  write(config_of("llama"), {.rank = 2, .dora = true});
  EXPECT_EQ(nlohmann::json::parse(get(config_file))["use_dora"], true);
  const auto vectors_of = [&](const std::string& name, std::size_t n) {
    const auto file = must(SafetensorsFile::open(io, tensors_file));
    EXPECT_EQ(file->find(name)->shape, std::vector<std::uint64_t>{n});
    std::vector<float> values(n);
    must(file->read(name, std::as_writable_bytes(std::span(values))));
    return values;
  };
  std::vector<float> ours(16 + 8);
  must(numbered("layers.0.qkv.lora_magnitude", ours));
  EXPECT_EQ(vectors_of("base_model.model.model.layers.0.self_attn.v_proj.lora_magnitude_vector", 8),
            std::vector<float>(ours.begin() + 16, ours.end()));
  write(config_of("bloom"), {.rank = 2, .dora = true});
  const std::vector<float> bloom =
      vectors_of("base_model.model.transformer.h.0.self_attention.query_key_value.lora_magnitude_vector", 48);
  ours.resize(48);
  must(numbered("layers.0.qkv.lora_magnitude", ours));
  EXPECT_EQ(bloom[4], ours[16]);  // the first key of head 0
}

TEST_F(PeftFolderTest, MagnitudesThatAreMissingOrNotAskedForAreRefused) {
  const DecoderConfig config = config_of("llama");
  write(config, {.rank = 2});
  change([](nlohmann::json& root) { root["use_dora"] = true; });
  EXPECT_THAT(message(opened(config)), HasSubstr("q_proj.lora_magnitude_vector is missing"));
  write(config, {.rank = 2, .dora = true});
  change([](nlohmann::json& root) { root["use_dora"] = false; });
  EXPECT_THAT(message(opened(config)), HasSubstr("q_proj.lora_magnitude_vector is not a tensor"));
}

TEST_F(PeftFolderTest, ModulesAreListedByTheirLastPartsOrInFull) {
  write(config_of("llama"), {.rank = 2, .targets = {"q_proj", "model.layers.0.self_attn.v_proj", "v_proj"}});
  EXPECT_EQ(nlohmann::json::parse(get(config_file))["target_modules"],
            (std::vector<std::string>{"q_proj", "v_proj"}));
  write(config_of("llama"), {.rank = 2, .targets = {"model.layers.0.self_attn.v_proj"}});
  EXPECT_EQ(nlohmann::json::parse(get(config_file))["target_modules"],
            std::vector<std::string>{"model.layers.0.self_attn.v_proj"});
}

TEST_F(PeftFolderTest, LayersToTransformLimitTheModulesToTheirLayers) {
  const DecoderConfig config = config_of("llama");
  for (const auto& [layers, module] : {std::pair{"0", "model.layers.0.self_attn.q_proj"},
                                       std::pair{"[1]", "model.layers.1.self_attn.q_proj"}}) {
    write(config, {.rank = 2, .targets = {module}});
    change([&](nlohmann::json& root) {
      root["target_modules"] = {"q_proj"};
      root["layers_to_transform"] = nlohmann::json::parse(layers);
    });
    const auto folder = must(PeftFolder::open(io, adapter, config));
    EXPECT_THAT(modules_of(folder->targets()), ElementsAre(module));
  }
  write(config, {.rank = 2, .targets = {"q_proj"}});
  change([](nlohmann::json& root) { root["layers_to_transform"] = nlohmann::json::array(); });
  EXPECT_TRUE(opened(config).is_ok()) << "an empty list means all layers";
}

TEST_F(PeftFolderTest, ARankAboveTheShorterSideOfAMatrixIsRead) {
  const DecoderConfig config = config_of("llama");
  write(config, {.rank = 40, .targets = {"q_proj", "down_proj"}});
  const auto folder = must(PeftFolder::open(io, adapter, config));
  EXPECT_EQ(folder->targets().front().lora.part.rank, 40);
  EXPECT_TRUE(check_peft_export(io, adapter, config, numbered).is_ok());
}

// As PEFT reads them by re.match(rf"(.*\.)?({pattern})$", module).
TEST_F(PeftFolderTest, AnAnchoredPatternIsTheWholeNameOfAModule) {
  const DecoderConfig config = config_of("llama");
  write(config, {.rank = 2, .alpha = 2, .targets = {"q_proj"}});
  change([](nlohmann::json& root) {
    root["alpha_pattern"] = {{"^model\\.layers\\.1\\.self_attn\\.q_proj$", 6}};
  });
  const auto folder = must(PeftFolder::open(io, adapter, config));
  EXPECT_EQ(folder->targets().at(0).lora.scale, 1.0f);
  EXPECT_EQ(folder->targets().at(1).lora.scale, 3.0f);
}

TEST_F(PeftFolderTest, WhatStrataDoesNotHaveIsRefusedByName) {
  const DecoderConfig config = config_of("llama");
  write(config, {});
  const struct {
    const char *key, *value, *message;
  } kCases[] = {
      {"peft_type", R"("IA3")", "peft_type is \"IA3\"; strata reads LORA"},
      {"lora_dropout", "2", "lora_dropout is 2; it must be 0 to below 1"},
      {"init_lora_weights", R"("OLoRA")", "init_lora_weights is \"OLoRA\": A and B belong to"},
      {"init_lora_weights", R"("PiSSA_niter_4")", "init_lora_weights is \"PiSSA_niter_4\""},
      {"init_lora_weights", R"("magic")", "init_lora_weights is \"magic\"; strata knows"},
      {"layers_to_transform", "[0, -1]", "layers_to_transform has -1"},
      {"layers_to_transform", "[7]", "layers_to_transform has 7; the model has layers 0 to 1"},
      {"use_dora", "2", "use_dora is 2"},
      {"modules_to_save", R"([1])", "modules_to_save has 1; it must be a list of names"},
      {"modules_to_save", R"(["lm_heat", "lm_head"])", "lm_head.weight is missing"},
      {"modules_to_save", R"(["k_proj"])", "k_proj.weight is stored as one parameter with"},
      {"modules_to_save", R"(["lm_head"])", "base_model.model.lm_head.weight is missing"},
      {"trainable_token_indices", "[3]",
       "model.embed_tokens.token_adapter.trainable_tokens_delta is missing"},
      {"trainable_token_indices", "[30, -1]", "trainable_token_indices has 30; the model has tokens 0 to 29"},
      {"trainable_token_indices", R"({"lm_head": [1, 1]})",
       "trainable_token_indices of 'lm_head' has 1 twice"},
      {"trainable_token_indices", "[]", "trainable_token_indices names no token"},
      {"trainable_token_indices", "3", "trainable_token_indices is 3; it must be a list of tokens"},
      {"trainable_token_indices", R"({"q_proj": [true]})", "trainable_token_indices.q_proj has true"},
      {"trainable_token_indices", R"({"q_proj": [1]})", "this names other modules"},
      {"a_new_key", "1", "a_new_key = 1"},
      {"bias", R"("some")", "bias is \"some\"; it must be none, all or lora_only"},
      {"task_type", R"("SEQ_CLS")", "task_type is \"SEQ_CLS\""},
      {"target_modules", R"("(?i).*attn.*")", "'(?i).*attn.*' has a group of a kind"},
      {"target_modules", R"([1])", "it must be a list of names"},
      {"rank_pattern", R"({"^model.*": 3})", "has the shape"},
      {"r", "2.5", "r is 2.5; it must be a whole number"},
      {"lora_alpha", "0", "lora_alpha is 0, with which the adapter changes nothing"},
      {"lora_alpha", "1e300", "it must be above 0 and at most 1000000"},
      {"r", "0", "the rank of model.layers.0.self_attn.q_proj is 0"}};
  const std::string before = get(config_file);
  for (const auto& each : kCases) {
    put(config_file, before);
    change([&](nlohmann::json& root) { root[each.key] = nlohmann::json::parse(each.value); });
    EXPECT_THAT(message(opened(config)), HasSubstr(each.message)) << each.key;
  }
  put(config_file, before);
  change([](nlohmann::json& root) { root["init_lora_weights"] = "MiCA", root["lora_dropout"] = 0.05; });
  EXPECT_TRUE(opened(config).is_ok()) << "dropout acts in training only";
  change([](nlohmann::json& root) { root["lora_dropout"] = root["use_dora"] = nullptr; });
  EXPECT_TRUE(opened(config).is_ok());
}

TEST_F(PeftFolderTest, AnAdapterOfAnotherModelAndDamagedFilesAreRefused) {
  DecoderConfig config = config_of("llama");
  write(config, {.rank = 2});
  DecoderConfig wider = config;
  wider.hidden = 32;
  wider.layers = 3;
  EXPECT_THAT(
      message(opened(wider)),
      AllOf(HasSubstr("the adapter does not fit the model"),
            HasSubstr(
                "layers.0.self_attn.q_proj.lora_A.weight has the shape [2, 16], but the model needs [2, 32]"),
            HasSubstr("base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight is missing")));
  change([](nlohmann::json& root) { root["target_modules"] = {"q_proj"}; });
  EXPECT_THAT(message(opened(config)), HasSubstr("v_proj.lora_A.weight is not a tensor of an adapter"));
  const std::string tensors = get(tensors_file);
  for (std::size_t n = 0; n < tensors.size(); n += tensors.size() / 40 + 1) {
    put(tensors_file, tensors.substr(0, n));
    EXPECT_FALSE(opened(config).is_ok()) << n;
  }
  const std::string text = get(config_file);
  put(tensors_file, tensors);
  for (std::size_t n = 0; n + 2 < text.size(); n += 7) {
    put(config_file, text.substr(0, n));
    EXPECT_FALSE(opened(config).is_ok()) << n;
  }
}

TEST_F(PeftFolderTest, ALinkToAnotherPlaceIsRefusedAsThoseOfWeightsAre) {
  const DecoderConfig config = config_of("llama");
  for (const std::string name : {"adapter_model.safetensors", "adapter_config.json"}) {
    write(config, {.rank = 2});
    const std::string elsewhere = dir.file("elsewhere-" + name);
    std::filesystem::rename(adapter + "/" + name, elsewhere);
    std::filesystem::create_symlink(elsewhere, adapter + "/" + name);
    EXPECT_THAT(message(opened(config)),
                HasSubstr(name + ": a symlink to " + elsewhere + ", which is neither"));
  }
}

TEST_F(PeftFolderTest, AnExportNeitherOverwritesNorLeavesAHalf) {
  const DecoderConfig config = config_of("llama");
  write(config, {});
  EXPECT_THAT(message(export_peft(io, adapter, config, {}, "", numbered)), HasSubstr("already exists"));
  const auto diverged = [](std::string_view param, std::span<float> into) {
    must(numbered(param, into));
    if (param == "layers.1.qkv.lora_B") into[3] = std::numeric_limits<float>::infinity();
    return Status::ok();
  };
  const Status status = export_peft(io, dir.file("other"), config, {}, "", diverged);
  EXPECT_EQ(status.code(), Code::diverged);
  EXPECT_THAT(message(status),
              HasSubstr("element 3 of base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"));
  EXPECT_THAT(must(io.list(dir.path())), ::testing::Each(::testing::Not(::testing::StartsWith("other"))));
  must(export_peft(io, dir.file("other") + "/", config, {}, "", numbered));
  EXPECT_TRUE(check_peft_export(io, dir.file("other"), config, numbered).is_ok());
}

TEST(MergeLoraTest, AddsTheProductToTheRowsOfEachPart) {
  const LoraGroup group{"w", 0.5f, {{{{0, 2, 1}, {3, 1, 2}}}, 2}, "a", "b"};
  const std::vector<float> a = {1, 2, /**/ 3, 4, /**/ 5, 6}, b = {2, 4, /**/ 6, 8};
  std::vector<float> w(8, 1.0f);
  merge_lora(group, 2, a, b, w);
  EXPECT_EQ(w, (std::vector<float>{2, 3, 3, 5, 1, 1, 1 + 9 + 20, 1 + 12 + 24}));
}

// [3, 4] has the norm 5; a row of zeros stays one.
TEST(MergeLoraTest, WithDoraRowsGetTheNormsOfTheirMagnitudes) {
  const LoraGroup group{"w", 1.0f, {{{{0, 1, 1}, {2, 1, 1}}}, 2}, "a", "b", "m"};
  const std::vector<float> a = {1, 2, /**/ 1, 1}, b = {1, /**/ 0}, m = {10, 7};
  std::vector<float> w = {2, 2, /**/ 5, 6, /**/ 0, 0};
  merge_lora(group, 2, a, b, w, m);
  EXPECT_EQ(w, (std::vector<float>{6, 8, 5, 6, 0, 0}));
}

}  // namespace
}  // namespace strata
