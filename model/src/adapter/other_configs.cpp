#include <array>

#include <strata/runtime/str.h>

#include "adapter/peft_config.h"
#include <strata/runtime/config/json_fields.h>

// adapter_config.json of the methods other than LoRA: prompt tuning, P-tuning and prefix tuning as PEFT has
// them, and bottleneck adapters, which PEFT does not have.

namespace strata::detail {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Placement = BottleneckSettings::Placement;

constexpr const char *kPrompt = "PROMPT_TUNING", *kPTuning = "P_TUNING", *kPrefix = "PREFIX_TUNING",
                     *kBottleneck = "BOTTLENECK";
constexpr std::int64_t kMostTokens = 1 << 20;
constexpr double kLargestScale = 1e6;  // as in section adapter
constexpr std::array<std::pair<Placement, const char*>, 3> kPlacements = {
    {{Placement::attention_mlp, "attention_mlp"},
     {Placement::mlp, "mlp"},
     {Placement::parallel, "parallel"}}};

// The shape of the tensors says the rest: these follow from the model, or say how values started.
Result<std::int64_t> read_tokens(const json& root) {
  STRATA_TRY(refuse_other_keys(
      root, {"peft_type", "task_type", "num_virtual_tokens", "token_dim", "num_transformer_submodules",
             "num_attention_heads", "num_layers", "prompt_tuning_init", "prompt_tuning_init_text",
             "tokenizer_name_or_path", "tokenizer_kwargs", "encoder_hidden_size", "encoder_num_layers",
             "encoder_dropout", "encoder_reparameterization_type", "init_weights"}));
  STRATA_TRY_ASSIGN(const std::int64_t submodules, whole_number(root, "num_transformer_submodules", 1));
  if (submodules != 1)
    return unsupported(str("num_transformer_submodules is ", submodules, "; a decoder has 1"));
  STRATA_TRY_ASSIGN(const std::int64_t tokens, whole_number(root, "num_virtual_tokens", 0));
  if (tokens < 1 || tokens > kMostTokens)
    return corrupt(str("num_virtual_tokens is ", tokens, "; it must be 1 to ", kMostTokens));
  return tokens;
}

/// Which of the words the value is.
Result<std::size_t> read_word(const json& root, const char* key, std::initializer_list<const char*> words) {
  const json& value = field(root, key);
  std::string known;
  for (const char* const* word = words.begin(); word != words.end(); ++word) {
    if (value == *word) return static_cast<std::size_t>(word - words.begin());
    known += str(known.empty() ? "" : ", ", *word);
  }
  return corrupt(str(key, " is ", shown(value), "; it must be one of ", known));
}

Result<BottleneckSettings> read_bottleneck(const json& root) {
  STRATA_TRY(refuse_other_keys(
      root, {"peft_type", "library", "task_type", "placement", "bottleneck", "activation", "scale"}));
  BottleneckSettings settings;
  STRATA_TRY_ASSIGN(settings.width, whole_number(root, "bottleneck", 0));
  if (settings.width < 1 || settings.width > kMostTokens)
    return corrupt(str("bottleneck is ", settings.width, "; it must be 1 to ", kMostTokens));
  STRATA_TRY_ASSIGN(const std::size_t activation, read_word(root, "activation", {"relu", "gelu"}));
  settings.gelu = activation == 1;
  STRATA_TRY_ASSIGN(settings.scale, real_number(field(root, "scale"), "scale"));
  if (!(settings.scale > 0) || settings.scale > kLargestScale)
    return corrupt(str("scale is ", settings.scale, "; it must be above 0 and at most ", kLargestScale));
  STRATA_TRY_ASSIGN(const std::size_t placement,
                    read_word(root, "placement", {"attention_mlp", "mlp", "parallel"}));
  settings.placement = kPlacements[placement].first;
  return settings;
}

void put_tokens(ordered_json& root, const DecoderConfig& config, std::int64_t tokens) {
  root["num_virtual_tokens"] = tokens;
  root["token_dim"] = config.hidden;
  root["num_transformer_submodules"] = 1;
  root["num_attention_heads"] = config.heads;
  root["num_layers"] = config.layers;
}

struct PutSettings {
  ordered_json& root;
  const DecoderConfig& config;
  void operator()(const LoraSettings&) const {}
  void operator()(const BottleneckSettings& s) const {
    root["library"] = "strata";
    for (const auto& [value, name] : kPlacements)
      if (s.placement == value) root["placement"] = name;
    root["bottleneck"] = s.width;
    root["activation"] = s.gelu ? "gelu" : "relu";
    root["scale"] = s.scale;
  }
  void operator()(const PromptSettings& s) const {
    put_tokens(root, config, s.tokens);
    root["prompt_tuning_init"] = "RANDOM";
  }
  void operator()(const PTuningSettings& s) const {
    put_tokens(root, config, s.tokens);
    root["encoder_reparameterization_type"] = "MLP";
    root["encoder_hidden_size"] = s.encoder_width;
    root["encoder_num_layers"] = 2;
    root["encoder_dropout"] = 0.0;
  }
  void operator()(const PrefixSettings& s) const {
    put_tokens(root, config, s.tokens);
    // A prefix has the heads of the keys and values.
    root["token_dim"] = config.kv_heads * config.head_dim;
    root["num_attention_heads"] = config.kv_heads;
    root["prefix_projection"] = false;
  }
};

const char* type_of(const AdapterSettings& settings) {
  return std::holds_alternative<BottleneckSettings>(settings) ? kBottleneck
         : std::holds_alternative<PTuningSettings>(settings)  ? kPTuning
         : std::holds_alternative<PrefixSettings>(settings)   ? kPrefix
                                                              : kPrompt;
}

}  // namespace

Result<AdapterSettings> read_other_method(const json& root) {
  const json& type = field(root, "peft_type");
  if (type == kBottleneck) {
    STRATA_TRY_ASSIGN(const BottleneckSettings settings, read_bottleneck(root));
    return AdapterSettings(settings);
  }
  if (type != kPrompt && type != kPTuning && type != kPrefix)
    return unsupported(str("peft_type is ", shown(type), "; strata reads LORA, ", kPrompt, ", ", kPTuning,
                           ", ", kPrefix, " and ", kBottleneck));
  STRATA_TRY_ASSIGN(const std::int64_t tokens, read_tokens(root));
  return type == kPrefix ? AdapterSettings(PrefixSettings{tokens}) : AdapterSettings(PromptSettings{tokens});
}

std::string adapter_config_json(const DecoderConfig& config, const AdapterSettings& settings,
                                const std::string& base) {
  ordered_json root;
  root["peft_type"] = type_of(settings);
  root["task_type"] = "CAUSAL_LM";
  root["base_model_name_or_path"] = base.empty() ? ordered_json() : ordered_json(base);
  root["inference_mode"] = true;
  std::visit(PutSettings{root, config}, settings);
  return root.dump(2) + "\n";
}

}  // namespace strata::detail
