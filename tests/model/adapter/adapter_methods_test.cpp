// The folders of adapters other than LoRA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "model/adapter/small_decoder.h"
#include "support/temp_dir.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Placement = BottleneckSettings::Placement;

DecoderConfig small_decoder(std::string_view family) {
  DecoderConfig config = test::small_decoder(family);
  config.positions = 12;
  return config;
}

/// A value of its own for each element of each parameter.
Status random_param(std::string_view param, std::span<float> into) {
  const Rng rng(std::hash<std::string_view>{}(param), 1);
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = rng.normal(i);
  return {};
}

const AdapterSettings kMethods[] = {
    BottleneckSettings{.placement = Placement::attention_mlp, .width = 3, .gelu = true, .scale = 0.25},
    BottleneckSettings{.placement = Placement::mlp, .width = 2},
    BottleneckSettings{.placement = Placement::parallel, .width = 4, .scale = 4}, PromptSettings{3},
    PrefixSettings{4}};

class AdapterFolderTest : public ::testing::Test {
 protected:
  void write(const DecoderConfig& config, const AdapterSettings& settings,
             const ParamSource& source = random_param) {
    must(io.remove_all(adapter));
    must(export_peft(io, adapter, config, settings, "base/model", source));
  }
  nlohmann::json config_json() {
    return nlohmann::json::parse(must(read_text(io, adapter + "/adapter_config.json", 1 << 20)));
  }
  std::string message_with(const DecoderConfig& config, const char* key, const char* value) {
    nlohmann::json root = before_;
    root[key] = nlohmann::json::parse(value);
    must(write_text_atomically(io, adapter + "/adapter_config.json", root.dump()));
    return std::string(PeftFolder::open(io, adapter, config).status().message());
  }
  std::vector<float> tensor(const std::string& name, std::size_t n) {
    const auto file = must(SafetensorsFile::open(io, adapter + "/adapter_model.safetensors"));
    std::vector<float> values(n);
    must(file->read(name, std::as_writable_bytes(std::span(values))));
    return values;
  }

  const test::TempDir dir;
  const std::string adapter = dir.file("adapter");
  nlohmann::json before_;
  Io& io = posix_io();
};

TEST_F(AdapterFolderTest, WhatIsWrittenIsReadBackForEveryFamilyAndMethod) {
  for (const std::string_view family : decoder_families())
    for (const AdapterSettings& settings : kMethods) {
      const DecoderConfig config = small_decoder(family);
      write(config, settings);
      const auto folder = must(PeftFolder::open(io, adapter, config));
      EXPECT_EQ(folder->base(), "base/model");
      EXPECT_EQ(folder->settings(), settings) << family << ", " << describe(settings);
      EXPECT_TRUE(folder->targets().empty());
      EXPECT_TRUE(check_peft_export(io, adapter, config, random_param).is_ok()) << family;
      // The folder has what the program's adapter has.
      Program program = must(record_decoder(config, 1, DecoderHead::loss));
      const std::size_t n_base = program.params.size();
      auto adapted = add_adapter(std::move(program), config, settings);
      if (!adapted.has_value() &&
          adapted.status().message().find("have no plain attention") != std::string::npos) {
        EXPECT_TRUE(family_limits(family).delta || family_limits(family).short_conv ||
                    family_limits(family).latent || family_limits(family).mamba)
            << family;
        continue;
      }
      if (config.full_heads && std::holds_alternative<PrefixSettings>(settings)) {
        EXPECT_THAT(std::string(adapted.status().message()), HasSubstr("2 heads of 4 and 2 of 8")) << family;
        continue;
      }
      if (config.experts.n > 0 && std::holds_alternative<BottleneckSettings>(settings)) {
        EXPECT_THAT(std::string(adapted.status().message()), HasSubstr("are mixtures of experts")) << family;
        continue;
      }
      program = must(std::move(adapted));
      EXPECT_EQ(folder->params().size(), program.params.size() - n_base);
      for (std::size_t i = n_base; i < program.params.size(); ++i)
        EXPECT_EQ(folder->params().at(program.params[i].name), program.params[i].shape.n_elems());
    }
}

// As PEFT reads it: [tokens, layers, key or value, head, d].
TEST_F(AdapterFolderTest, APrefixIsOneTensorWithTheKeysAndValuesOfAllLayers) {
  const DecoderConfig config = small_decoder("llama");
  write(config, PrefixSettings{4});
  constexpr std::size_t of_layer = 2 * 2 * 4, row = 2 * of_layer;  // 2 heads of 4
  const std::vector<float> all = tensor("prompt_embeddings", 4 * row);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    std::vector<float> ours(4 * of_layer);
    must(random_param(str("layers.", layer, ".prefix"), ours));
    for (std::size_t i = 0; i < ours.size(); ++i)
      ASSERT_EQ(all[i / of_layer * row + layer * of_layer + i % of_layer], ours[i]) << layer << ", " << i;
  }
  const auto root = config_json();
  EXPECT_EQ(root["peft_type"], "PREFIX_TUNING");
  EXPECT_EQ(root["num_virtual_tokens"], 4);
  EXPECT_EQ(root["token_dim"], 2 * 4);
  EXPECT_EQ(root["num_attention_heads"], 2);
  EXPECT_EQ(root["num_layers"], 2);
}

// The encoder: three layers with ReLU between them, whose results a folder has.
TEST_F(AdapterFolderTest, APromptWithAnEncoderIsWrittenAsItsResults) {
  const DecoderConfig config = small_decoder("gpt2");
  const PTuningSettings settings{.tokens = 2, .encoder_width = 3};
  const ParamSource source = [](std::string_view param, std::span<float> into) -> Status {
    std::fill(into.begin(), into.end(), 0.0f);
    if (param == "prompt.weight") into[0] = 2, into[16] = -1;            // the first value of each row
    if (param == "prompt.encoder.0.weight") into[0] = 3, into[16] = -1;  // [3, 16]
    if (param == "prompt.encoder.0.bias") into[2] = 0.5f;
    if (param == "prompt.encoder.1.weight") into[0] = into[4] = into[8] = 1;   // [3, 3]
    if (param == "prompt.encoder.2.weight") into[0] = into[1] = into[5] = 10;  // [16, 3]
    if (param == "prompt.encoder.2.bias") into[15] = 7;
    return {};
  };
  const ParamSource results = folder_values(source, config, settings);
  write(config, settings, results);
  EXPECT_EQ(config_json()["peft_type"], "P_TUNING");
  EXPECT_EQ(config_json()["encoder_hidden_size"], 3);
  const std::vector<float> rows = tensor("prompt_embeddings", 2 * 16);
  // Row 0 becomes relu(6, -2, 0.5) = (6, 0, 0.5), row 1 relu(-3, 1, 0.5) = (0, 1, 0.5).
  EXPECT_EQ(rows[0], 60);
  EXPECT_EQ(rows[1], 5);
  EXPECT_EQ(rows[15], 7);
  EXPECT_EQ(rows[16], 10);
  EXPECT_EQ(rows[17], 5);
  const auto folder = must(PeftFolder::open(io, adapter, config));
  EXPECT_EQ(folder->settings(), AdapterSettings(PromptSettings{2})) << "it goes on without the encoder";
  EXPECT_TRUE(check_peft_export(io, adapter, config, results).is_ok());
}

TEST_F(AdapterFolderTest, WhatStrataDoesNotHaveIsRefusedByName) {
  const DecoderConfig config = small_decoder("llama");
  write(config, PrefixSettings{4});
  before_ = config_json();
  EXPECT_THAT(message_with(config, "prefix_projection", "true"), HasSubstr("prefix_projection = true"));
  EXPECT_THAT(message_with(config, "num_virtual_tokens", "0"),
              HasSubstr("num_virtual_tokens is 0; it must be 1 to 1048576"));
  EXPECT_THAT(message_with(config, "num_transformer_submodules", "2"),
              HasSubstr("num_transformer_submodules is 2; a decoder has 1"));
  EXPECT_THAT(message_with(config, "peft_type", "\"IA3\""),
              HasSubstr("peft_type is \"IA3\"; strata reads LORA, PROMPT_TUNING, P_TUNING, PREFIX_TUNING and "
                        "BOTTLENECK"));
  EXPECT_THAT(message_with(config, "num_virtual_tokens", "5"),
              HasSubstr("prompt_embeddings has the shape [4, 32], but the model needs [5, 32]"));
  EXPECT_THAT(message_with(config, "task_type", "\"SEQ_CLS\""), HasSubstr("task_type is \"SEQ_CLS\""));
  write(config, kMethods[0]);
  before_ = config_json();
  EXPECT_THAT(message_with(config, "activation", "\"silu\""),
              HasSubstr("activation is \"silu\"; it must be one of relu, gelu"));
  EXPECT_THAT(message_with(config, "placement", "\"before\""),
              HasSubstr("one of attention_mlp, mlp, parallel"));
  EXPECT_THAT(message_with(config, "bottleneck", "0"), HasSubstr("bottleneck is 0; it must be 1 to"));
  EXPECT_THAT(message_with(config, "scale", "-1"), HasSubstr("scale is -1; it must be above 0"));
  EXPECT_THAT(message_with(config, "dropout", "0.1"), HasSubstr("dropout = 0.1"));
  EXPECT_THAT(message_with(config, "placement", "\"mlp\""),
              HasSubstr("layers.0.attn_adapter.up.weight is not a tensor of an adapter"));
}

TEST(AddAdapterTest, ALearnedTableNeedsPositionsForVirtualTokens) {
  const DecoderConfig config = small_decoder("gpt2");
  const auto with = [&](std::int64_t n) {
    return add_adapter(must(record_decoder(config, 1, DecoderHead::loss)), config, PromptSettings{n});
  };
  EXPECT_TRUE(with(4).has_value());
  EXPECT_EQ(with(5).status().message(),
            "5 virtual tokens before sequences of 8 tokens: the model's table has 12 positions");
}

// A window that holds the whole sequence does not hold the virtual tokens, too.
TEST(AddAdapterTest, AWindowThatASequenceFillsAppliesWithVirtualTokens) {
  DecoderConfig config = small_decoder("mistral");
  config.window = 10;
  for (const auto& [n, window] : {std::pair{2, 0}, {3, 10}}) {
    const Program program =
        must(add_adapter(must(record_decoder(config, 1, DecoderHead::loss)), config, PrefixSettings{n}));
    for (const Instr& instr : program.code)
      if (instr.op == Op::attention) {
        EXPECT_EQ(instr.attrs.as<AttentionAttrs>().window, window) << n;
      }
  }
}

}  // namespace
}  // namespace strata
