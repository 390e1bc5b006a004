// Adapters over the class of a model that also reads images, where the text model's modules have other names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

#include <strata/model/adapter/peft_folder.h>
#include <strata/runtime/rng.h>

#include "model/adapter/small_decoder.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Status random_of(std::string_view param, std::span<float> into) {
  const Rng rng(std::hash<std::string_view>{}(param), 1);
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = rng.normal(i);
  return {};
}

class WholeNamesTest : public ::testing::Test {
 protected:
  /// Writes the adapter over a whole model of the type.
  void write(const LoraSettings& settings, const std::string& type = "qwen3_5") {
    must(posix_io().remove_all(path));
    const json base = {{"model_type", type},
                       {"architectures", {"Qwen3_5ForConditionalGeneration"}},
                       {"text_config", json::object()}};
    must(export_peft(posix_io(), path, config, settings, "models/whole", random_of, base.dump()));
  }
  json said() const {
    return json::parse(must(read_text(posix_io(), path + "/adapter_config.json", 1 << 20)));
  }
  void say(const json& root) {
    must(write_text_atomically(posix_io(), path + "/adapter_config.json", root.dump()));
  }
  std::vector<std::string> tensors() const {
    const auto file = must(SafetensorsFile::open(posix_io(), path + "/adapter_model.safetensors"));
    std::vector<std::string> names;
    for (const SafetensorsEntry& entry : file->entries()) names.push_back(entry.name);
    return names;
  }
  /// Gives all tensors other names.
  void rename(const std::string& from, const std::string& to) {
    const std::string file = path + "/adapter_model.safetensors";
    const auto was = must(SafetensorsFile::open(posix_io(), file));
    std::vector<TensorSpec> specs;
    for (const SafetensorsEntry& entry : was->entries()) {
      std::string name = entry.name;
      if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
      specs.push_back({name, entry.dtype, entry.shape});
    }
    const auto writer = must(SafetensorsWriter::create(posix_io(), file + ".new", specs));
    for (const SafetensorsEntry& entry : was->entries()) {
      std::vector<std::byte> bytes(entry.bytes);
      must(was->read(entry.name, bytes));
      must(writer->append(bytes));
    }
    must(writer->finish());
    must(posix_io().rename(file + ".new", file));
  }
  std::vector<std::string> modules() const {
    std::vector<std::string> names;
    const auto folder = must(PeftFolder::open(posix_io(), path, config));
    for (const LoraTarget& target : folder->targets()) names.push_back(target.module);
    return names;
  }
  Status check() const { return check_peft_export(posix_io(), path, config, random_of); }

  const test::TempDir dir;
  const std::string path = dir.file("adapter");
  const DecoderConfig config = test::small_decoder("llama");
};

TEST_F(WholeNamesTest, AnAdapterHasTheNamesOfTheClassAndIsReadBack) {
  write({.rank = 2, .targets = {"q_proj", "v_proj"}});
  EXPECT_THAT(tensors(), Each(StartsWith("base_model.model.model.language_model.layers.")));
  EXPECT_EQ(said()["target_modules"], R"(model\.language_model\.(.*\.)?(q_proj|v_proj))");
  EXPECT_EQ(said()["base_model_name_or_path"], "models/whole");
  EXPECT_EQ(said()["auto_mapping"],
            (json{{"base_model_class", "Qwen3_5ForConditionalGeneration"},
                  {"parent_library", "transformers.models.qwen3_5.modeling_qwen3_5"}}));
  EXPECT_TRUE(said()["task_type"].is_null());
  EXPECT_THAT(modules(), ElementsAre("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj",
                                     "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"));
  EXPECT_TRUE(check().is_ok()) << check().message();
}

TEST_F(WholeNamesTest, WhatIsNotTheSameInAllLayersIsNamedInFull) {
  write({.rank = 2, .targets = {"model.layers.1.mlp.up_proj", "lm_head"}});
  EXPECT_EQ(said()["target_modules"], json({"lm_head", "model.language_model.layers.1.mlp.up_proj"}));
  EXPECT_THAT(modules(), ElementsAre("model.layers.1.mlp.up_proj", "lm_head"));
  EXPECT_TRUE(check().is_ok()) << check().message();
}

TEST_F(WholeNamesTest, RanksAndModulesThatAreTrainedWholeAreThoseOfTheTextModel) {
  LoraSettings settings{.rank = 2, .targets = {"q_proj"}, .save = {"norm", "lm_head"}};
  settings.rank_pattern = {{"model.layers.1.self_attn.q_proj", 3}};
  settings.alpha_pattern = {{R"(model\.layers\.0\..*)", 5}};
  settings.tokens = {{"model.embed_tokens", {3, 4}}};
  write(settings);
  // A vision tower has norms, too, which "norm" would name.
  EXPECT_THAT(said()["modules_to_save"].get<std::vector<std::string>>(),
              testing::Contains("model.language_model.norm"));
  EXPECT_THAT(said()["modules_to_save"].get<std::vector<std::string>>(),
              testing::Not(testing::Contains("norm")));
  EXPECT_EQ(said()["rank_pattern"], (json{{"model.language_model.layers.1.self_attn.q_proj", 3}}));
  EXPECT_EQ(said()["alpha_pattern"], (json{{R"(model\.language_model\.layers\.0\..*)", 5}}));
  const auto folder = must(PeftFolder::open(posix_io(), path, config));
  EXPECT_EQ(folder->targets(), must(lora_targets(config, settings)));
  EXPECT_TRUE(check().is_ok()) << check().message();
}

TEST_F(WholeNamesTest, PatternsThatPeopleWriteForTheClassChooseTheTextModelsModules) {
  write({.rank = 2, .targets = {"q_proj", "v_proj"}});
  const std::vector<std::string> want = modules();
  for (const char* const pattern : {R"(.*language_model.*\.(q_proj|v_proj))",
                                    R"(model\.language_model\.layers\.\d+\.self_attn\.(q|v)_proj)",
                                    R"((?!.*visual).*language_model\.layers.*\.(q|v)_proj)"}) {
    json root = said();
    root["target_modules"] = pattern;
    root["exclude_modules"] = R"(.*vision_tower.*)";
    say(root);
    EXPECT_EQ(modules(), want) << pattern;
  }
}

TEST_F(WholeNamesTest, NamesOfATextModelAndThoseOfOlderClassesAreRead) {
  write({.rank = 2, .targets = {"q_proj"}, .save = {"lm_head"}});
  const std::string whole = "base_model.model.model.language_model.";
  rename(whole, "base_model.model.language_model.model.");
  rename("base_model.model.lm_head", "base_model.model.language_model.lm_head");
  json root = said();
  root["target_modules"] = R"(language_model\.model\.layers.*q_proj)";
  root["modules_to_save"] = {"language_model.lm_head"};
  say(root);
  EXPECT_TRUE(check().is_ok()) << check().message();
  rename("base_model.model.language_model.", "base_model.model.");
  EXPECT_TRUE(check().is_ok()) << check().message();
}

TEST_F(WholeNamesTest, AModelWhoseClassHasTheTextModelsNamesKeepsThem) {
  write({.rank = 2, .targets = {"q_proj"}}, "deepseek_v32");
  EXPECT_EQ(said()["target_modules"], json({"q_proj"}));
  EXPECT_EQ(said()["task_type"], "CAUSAL_LM");
  EXPECT_THAT(tensors(), Each(StartsWith("base_model.model.model.layers.")));
}

TEST_F(WholeNamesTest, AnAdapterOfWhatReadsImagesIsRefusedByName) {
  write({.rank = 2, .targets = {"q_proj"}});
  rename("model.language_model.layers.1.", "model.visual.blocks.1.");
  EXPECT_THAT(
      std::string(PeftFolder::open(posix_io(), path, config).status().message()),
      HasSubstr("model.visual.blocks.1.self_attn.q_proj.lora_A.weight is not a tensor of an adapter"));
}

}  // namespace
}  // namespace strata
