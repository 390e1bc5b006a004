#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/runtime/str.h>

#include "model/adapter/small_decoder.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

DecoderConfig decoder(std::string_view family, bool tied) {
  DecoderConfig config = test::small_decoder(family);
  config.tied_head = tied;
  return config;
}
LoraSettings settings_of(std::vector<TrainedTokens> tokens) {
  LoraSettings settings;
  settings.rank = 2;
  settings.tokens = std::move(tokens);
  return settings;
}
/// Each target is shown as "MODULE PARAMETER of WEIGHT: places".
std::vector<std::string> targets(const DecoderConfig& config, std::vector<TrainedTokens> tokens) {
  std::vector<std::string> shown;
  for (const TokenTarget& target : must(token_targets(config, settings_of(std::move(tokens)))))
    shown.push_back(str(target.module, " ", target.rows.rows(), " of ", target.rows.weight, ":",
                        target.rows.in_embedding ? " embedding" : "", target.rows.in_head ? " head" : ""));
  return shown;
}
std::string problems(const DecoderConfig& config, const LoraSettings& settings) {
  return std::string(token_targets(config, settings).status().message());
}
Status zeros(std::string_view, std::span<float> into) {
  std::fill(into.begin(), into.end(), 0.0f);
  return {};
}

TEST(TokenTargetsTest, ATiedHeadHasTheEmbeddingsRowsUnlessItIsNamedWithOthers) {
  const DecoderConfig tied = decoder("llama", true), untied = decoder("llama", false);
  const char *const both = "model.embed_tokens tokens.token_rows of tokens.weight: embedding head",
                    *const table = "model.embed_tokens tokens.token_rows of tokens.weight: embedding",
                    *const head = "lm_head head.token_rows of head.weight: head",
                    *const tied_head = "lm_head head.token_rows of tokens.weight: head";
  EXPECT_THAT(targets(tied, {{"", {3, 7}}}), ElementsAre(both));
  EXPECT_THAT(targets(tied, {{"embed_tokens", {3, 7}}, {"lm_head", {3, 7}}}), ElementsAre(both));
  EXPECT_THAT(targets(tied, {{"lm_head", {7, 3}}, {"model.embed_tokens", {3, 7}}}),
              ElementsAre(table, tied_head));
  EXPECT_THAT(targets(tied, {{"lm_head", {3}}}), ElementsAre(tied_head));
  EXPECT_THAT(targets(untied, {{"", {3, 7}}}), ElementsAre(table));
  EXPECT_THAT(targets(untied, {{"", {3, 7}}, {"head", {3, 7}}}), ElementsAre(table, head));
  EXPECT_THAT(targets(decoder("gpt2", true), {{"wte", {0}}}),
              ElementsAre("transformer.wte tokens.token_rows of tokens.weight: embedding head"));
}

TEST(TokenTargetsTest, AllProblemsAreReportedAtOnce) {
  const DecoderConfig config = decoder("llama", false);
  EXPECT_THAT(
      problems(config, settings_of({{"", {30, 2, 2, -1}}, {"norm", {1}}, {"nothing", {1}}, {"lm_head", {}}})),
      AllOf(HasSubstr("trainable_tokens has 30; the model has tokens 0 to 29"),
            HasSubstr("trainable_tokens has 2 twice"),
            HasSubstr("trainable_tokens has -1; the model has tokens 0 to 29"),
            HasSubstr("trainable_tokens of 'norm': the token embedding, model.embed_tokens and the head, "
                      "lm_head, have tokens; this names other modules"),
            HasSubstr("trainable_tokens of 'nothing'"), HasSubstr("this names no module"),
            HasSubstr("trainable_tokens of 'lm_head' names no token")));
  EXPECT_THAT(problems(config, settings_of({{"", {1}}, {"embed_tokens", {2}}})),
              HasSubstr("trainable_tokens of 'embed_tokens': model.embed_tokens is named twice"));
}

TEST(TokenTargetsTest, AModuleThatHasAnAdapterOrIsTrainedWholeIsRefused) {
  const DecoderConfig config = decoder("llama", false);
  LoraSettings adapted = settings_of({{"", {1}}}), saved = adapted;
  adapted.targets = {"q_proj", "embed_tokens", "lm_head"};
  EXPECT_THAT(problems(config, adapted), HasSubstr("model.embed_tokens has an adapter, too"));
  saved.save = {"embed_tokens"};
  EXPECT_THAT(problems(config, saved),
              HasSubstr("'embed_tokens' lets all of model.embed_tokens be trained, too"));
  saved.save = {"lm_head"};
  EXPECT_TRUE(token_targets(config, saved).has_value());
}

TEST(TokenTargetsTest, AModelTakesUpRowsThatBothUsesOfItsMatrixHave) {
  EXPECT_TRUE(check_can_merge(decoder("llama", true), settings_of({{"", {1}}})).is_ok());
  EXPECT_FALSE(check_can_merge(decoder("llama", true), settings_of({{"lm_head", {1}}})).is_ok());
  EXPECT_FALSE(check_can_merge(decoder("llama", true), settings_of({{"", {1}}, {"lm_head", {2}}})).is_ok());
  EXPECT_TRUE(check_can_merge(decoder("llama", false), settings_of({{"lm_head", {1}}})).is_ok());
  EXPECT_FALSE(
      must(are_same_adapter(decoder("llama", false), settings_of({{"", {1}}}), settings_of({{"", {2}}}))));
  EXPECT_TRUE(must(are_same_adapter(decoder("llama", false), settings_of({{"", {1}}}),
                                    settings_of({{"embed_tokens", {1}}}))));
}

TEST(TokenTargetsTest, TheMergedMatrixHasTheRowsInTheirOrder) {
  const auto numbered = [](std::string_view name, std::span<float> into) -> Status {
    for (std::size_t i = 0; i < into.size(); ++i)
      into[i] = static_cast<float>(i) + (name == "tokens.token_rows" ? 1000.0f : 0.0f);
    return {};
  };
  const DecoderConfig config = decoder("llama", true);
  const ParamSource merged =
      with_token_rows(numbered, must(token_targets(config, settings_of({{"", {7, 3}}}))));
  std::vector<float> table(30 * 16);
  must(merged("tokens.weight", table));
  EXPECT_EQ(table[7 * 16], 1000);
  EXPECT_EQ(table[3 * 16 + 15], 1031);
  EXPECT_EQ(table[8 * 16], 8 * 16);
}

TEST(TokenTargetsTest, AFolderHasThemAsPeftWritesThem) {
  const test::TempDir dir;
  const std::string path = dir.file("adapter");
  const auto tensors_of = [&](const LoraSettings& settings, bool tied) {
    must(posix_io().remove_all(path));
    must(export_peft(posix_io(), path, decoder("llama", tied), settings, "base", zeros));
    const auto folder = must(PeftFolder::open(posix_io(), path, decoder("llama", tied)));
    EXPECT_TRUE(must(are_same_adapter(decoder("llama", tied), folder->settings(), settings)));
    std::vector<std::string> names;
    const auto file = must(SafetensorsFile::open(posix_io(), path + "/adapter_model.safetensors"));
    for (const SafetensorsEntry& entry : file->entries())
      if (entry.name.find("lora_") == std::string::npos)
        names.push_back(str(entry.name, " ", entry.shape[0], " ", entry.shape[1]));
    return names;
  };
  const auto indices = [&] {
    const std::string text = must(read_text(posix_io(), path + "/adapter_config.json", 1 << 20));
    return nlohmann::json::parse(text)["trainable_token_indices"].dump();
  };
  const std::string begin = "base_model.model.", end = ".token_adapter.trainable_tokens_delta ";
  EXPECT_THAT(tensors_of(settings_of({{"", {7, 3, 4}}}), true),
              ElementsAre(begin + "model.embed_tokens" + end + "3 16"));
  EXPECT_EQ(indices(), "[7,3,4]");
  EXPECT_THAT(tensors_of(settings_of({{"", {7}}, {"lm_head", {1, 2}}}), false),
              ElementsAre(begin + "model.embed_tokens" + end + "1 16", begin + "lm_head" + end + "2 16"));
  EXPECT_EQ(indices(), R"({"lm_head":[1,2],"model.embed_tokens":[7]})");
  EXPECT_THAT(tensors_of(settings_of({}), false), ElementsAre());
  EXPECT_EQ(indices(), "null");
}

// PEFT's save_embedding_layers, which it sets by itself where the vocabulary has grown.
TEST(TokenTargetsTest, AFolderMayHaveTheTablesAsWell) {
  const test::TempDir dir;
  for (const bool tied : {false, true}) {
    const std::string path = dir.file(tied ? "tied" : "untied"), file = path + "/adapter_model.safetensors";
    const DecoderConfig config = decoder("llama", tied);
    must(export_peft(posix_io(), path, config, settings_of({{"", {7}}}), "base", zeros));
    std::map<std::string, std::vector<std::uint64_t>> shapes;
    {
      const auto written = must(SafetensorsFile::open(posix_io(), file));
      for (const SafetensorsEntry& entry : written->entries()) shapes[entry.name] = entry.shape;
    }
    const std::string begin = "base_model.model.", end = ".token_adapter.";
    shapes[begin + "model.embed_tokens" + end + "base_layer.weight"] = {30, 16};
    shapes[begin + "lm_head" + (tied ? end + "base_layer" : "") + ".weight"] = {30, 16};
    if (tied) shapes[begin + "lm_head" + end + "trainable_tokens_delta"] = {1, 16};
    std::vector<TensorSpec> specs;
    for (const auto& [name, shape] : shapes) specs.push_back({name, "F32", shape});
    must(posix_io().remove_all(file));
    const auto writer = must(SafetensorsWriter::create(posix_io(), file, specs, {}));
    for (const TensorSpec& spec : specs)
      must(writer->append(
          std::as_bytes(std::span<const float>(std::vector<float>(spec.shape[0] * spec.shape[1], 0.0f)))));
    must(writer->finish());
    EXPECT_TRUE(
        must(PeftFolder::open(posix_io(), path, config))->has(tied ? "tokens.weight" : "head.weight"));
  }
}

}  // namespace
}  // namespace strata
