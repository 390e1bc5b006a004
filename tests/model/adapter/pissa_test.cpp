// Tests the export of a PiSSA adapter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/runtime/rng.h>

#include "model/adapter/small_decoder.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using kernels::SvdMethod;
using testing::AllOf;
using testing::HasSubstr;

DecoderConfig pissa_decoder(std::string_view family) {
  return with_derived_sizes(test::small_decoder(family));
}

Status random_of_name(std::string_view param, std::span<float> into) {
  const Rng rng(std::hash<std::string_view>{}(param), 1);
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = rng.normal(i);
  return {};
}

std::string refusal(const DecoderConfig& config, const LoraSettings& settings) {
  return std::string(lora_targets(config, settings).status().message());
}

const LoraSettings kSettings{.rank = 3,
                             .alpha = 4.5,
                             .pissa = SvdMethod::exact,
                             .targets = {LoraSettings::kAllLinear},
                             .rank_pattern = {{"q_proj", 2}},
                             .alpha_pattern = {{"v_proj", 7}}};

TEST(PissaFolderTest, IsLoraOfTwiceTheRankWithTheSameScales) {
  const DecoderConfig config = pissa_decoder("llama");
  const auto converted = std::get<LoraSettings>(folder_settings(kSettings));
  EXPECT_FALSE(converted.pissa);
  EXPECT_EQ(converted.rank, 6);
  const auto trained = must(lora_targets(config, kSettings)),
             exported = must(lora_targets(config, converted));
  ASSERT_EQ(exported.size(), trained.size());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    EXPECT_EQ(exported[i].lora.scale, trained[i].lora.scale) << trained[i].module;
    EXPECT_EQ(exported[i].lora.part.rank, 2 * trained[i].lora.part.rank) << trained[i].module;
  }
  LoraSettings by_root{.rank = 3, .alpha = 5, .rslora = true, .pissa = SvdMethod::subspace};
  EXPECT_FLOAT_EQ(must(lora_targets(config, std::get<LoraSettings>(folder_settings(by_root))))[0].lora.scale,
                  must(lora_targets(config, by_root))[0].lora.scale);
  EXPECT_EQ(folder_settings(LoraSettings{.rank = 3}), AdapterSettings(LoraSettings{.rank = 3}));
}

// Also of matrices whose parts have ranks and scales of their own, or rows in another order.
TEST(PissaFolderTest, TheProductOfItsFactorsIsTheDifferenceOfBoth) {
  for (const std::string_view family : {"llama", "gpt2", "bloom"}) {
    const DecoderConfig config = pissa_decoder(family);
    LoraSettings settings = kSettings;
    if (family != "llama") settings.rank_pattern = {}, settings.alpha_pattern = {};
    const AdapterSettings converted = folder_settings(settings);
    const auto trained = lora_groups(must(lora_targets(config, settings)));
    const auto exported = lora_groups(must(lora_targets(config, std::get<LoraSettings>(converted))));
    const ParamSource values = folder_values(random_of_name, config, settings);
    const auto inner = inner_extents(config);
    ASSERT_EQ(exported.size(), trained.size());
    for (std::size_t g = 0; g < trained.size(); ++g) {
      const LoraGroup &from = trained[g], &to = exported[g];
      const std::int64_t columns = inner.at(from.weight);
      const auto read = [&](const ParamSource& source, const std::string& name, std::int64_t n) {
        std::vector<float> tensor(static_cast<std::size_t>(n));
        must(source(name, tensor));
        return tensor;
      };
      const LoraPart last = from.parts.all().back();
      std::vector<float> want(static_cast<std::size_t>((last.first_row + last.rows) * columns)), got = want;
      merge_lora(from, columns, read(random_of_name, from.a, from.ranks() * columns),
                 read(random_of_name, from.b, from.elems()), want);
      LoraGroup minus = from;
      minus.scale = -from.scale;
      merge_lora(minus, columns, read(random_of_name, from.a0, from.ranks() * columns),
                 read(random_of_name, from.b0, from.elems()), want);
      merge_lora(to, columns, read(values, to.a, to.ranks() * columns), read(values, to.b, to.elems()), got);
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4) << from.a << " " << i;
    }
  }
}

TEST(PissaFolderTest, IsWrittenForPeftAndReadBack) {
  const test::TempDir dir;
  for (const std::string_view family : decoder_families()) {
    const DecoderConfig config = pissa_decoder(family);
    const LoraSettings settings{.rank = 2, .pissa = SvdMethod::exact, .targets = {LoraSettings::kAllLinear}};
    const std::string adapter = dir.file(std::string(family));
    const ParamSource values = folder_values(random_of_name, config, settings);
    must(export_peft(posix_io(), adapter, config, folder_settings(settings), "base/model", values));
    EXPECT_TRUE(check_peft_export(posix_io(), adapter, config, values).is_ok()) << family;
    const auto root =
        nlohmann::json::parse(must(read_text(posix_io(), adapter + "/adapter_config.json", 1 << 20)));
    EXPECT_EQ(root["init_lora_weights"], true);
    EXPECT_EQ(root["r"], 4);
  }
}

TEST(PissaFolderTest, WhatPeftCannotBeToldIsRefused) {
  const DecoderConfig config = pissa_decoder("llama");
  LoraSettings settings{.rank = 9, .alpha = 6e5, .rslora = true, .dora = true, .pissa = SvdMethod::exact};
  settings.rank_pattern = {{"v_proj", 2}};
  EXPECT_THAT(
      refusal(config, settings),
      AllOf(HasSubstr("PiSSA and DoRA cannot be combined"),
            HasSubstr("PiSSA and rsLoRA cannot be combined with rank_pattern or alpha_pattern"),
            HasSubstr("the rank of model.layers.0.self_attn.q_proj is 9; its matrix [16, 16] allows 1 to 8 "
                      "with PiSSA, whose exported adapter has twice the rank"),
            HasSubstr("is 600000; it must be above 0 and at most 500000")));
}

// Its A and B alone belong to a base from which PEFT has subtracted their first values.
TEST(PissaFolderTest, AFolderThatPeftHasNotConvertedIsRefused) {
  const test::TempDir dir;
  const DecoderConfig config = pissa_decoder("llama");
  const std::string adapter = dir.file("adapter"), config_file = adapter + "/adapter_config.json";
  must(export_peft(posix_io(), adapter, config, LoraSettings{.rank = 2}, "", random_of_name));
  auto root = nlohmann::json::parse(must(read_text(posix_io(), config_file, 1 << 20)));
  for (const char* start : {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga"}) {
    root["init_lora_weights"] = start;
    must(write_text_atomically(posix_io(), config_file, root.dump()));
    const Status status = PeftFolder::open(posix_io(), adapter, config).status();
    EXPECT_EQ(status.code(), Code::unsupported) << start;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("init_lora_weights is \"" + std::string(start)),
                      HasSubstr("path_initial_model_for_weight_conversion")));
  }
  for (const char* start : {"gaussian", "eva", "orthogonal"}) {
    root["init_lora_weights"] = start;
    must(write_text_atomically(posix_io(), config_file, root.dump()));
    EXPECT_TRUE(PeftFolder::open(posix_io(), adapter, config).has_value()) << start;
  }
}

}  // namespace
}  // namespace strata
