#include "adapter/peft_config.h"

#include <algorithm>
#include <cctype>
#include <span>

#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>

#include "adapter/module_pattern.h"
#include <strata/runtime/config/json_fields.h>
#include <strata/runtime/config/strict_json.h>

namespace strata::detail {
namespace {

using nlohmann::json;

// These keys change nothing here: where the adapter comes from, and how PEFT treats the object that it loads.
// fan_in_fan_out says how the base stores its matrices, which its family says, too.
constexpr const char* kIgnored[] = {"auto_mapping",   "base_model_name_or_path", "fan_in_fan_out",
                                    "inference_mode", "layers_pattern",          "megatron_core",
                                    "peft_version",   "qalora_group_size",       "revision"};
constexpr std::int64_t kMostLayers = 1 << 20;
// Starts with which PEFT subtracts from the base what A and B start as, and the others; in any case of
// letters.
constexpr std::string_view kChangesBase[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
constexpr std::string_view kKeepsBase[] = {"gaussian", "orthogonal", "eva", "mica"};

std::string lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// A text is a regular expression, which matches whole names, and a list has names or their last parts.
Status read_names(const json& root, const char* key, std::vector<std::string>& names) {
  const json& value = field(root, key);
  if (value.is_null()) return {};
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (text.empty()) return {};
    names = {lowered(text) == LoraSettings::kAllLinear ? LoraSettings::kAllLinear
             : is_module_pattern(text)                 ? text
                                                       : "^" + text};
    return {};
  }
  if (!value.is_array())
    return corrupt(str(key, " is ", shown(value), "; it must be a list of names, or a regular expression"));
  for (const json& name : value) {
    if (!name.is_string()) return corrupt(str(key, " has ", shown(name), "; it must be a list of names"));
    const std::string text = name.get<std::string>();
    if (is_module_pattern(text))
      return unsupported(str(key, " has ", shown(name),
                             " in a list, which PEFT takes for a name; a regular "
                             "expression must be the only text"));
    names.push_back(text);
  }
  return {};
}

Status read_parameters(const json& value, LoraSettings& settings) {
  if (value.is_null()) return {};
  if (!value.is_array())
    return corrupt(str("target_parameters is ", shown(value), "; it must be a list of names"));
  for (const json& name : value) {
    if (!name.is_string())
      return corrupt(str("target_parameters has ", shown(name), "; it must be a list of names"));
    settings.parameters.push_back(name.get<std::string>());
  }
  return {};
}

/// `root` has its keys in the order of the file, the first of which counts that matches.
template <class T, class Read>
Status read_pattern(const nlohmann::ordered_json& root, const char* key,
                    std::vector<std::pair<std::string, T>>& patterns, const Read& read) {
  const auto pattern = root.find(key);
  if (pattern == root.end() || pattern->is_null()) return {};
  if (!pattern->is_object())
    return corrupt(str(key, " is ", shown(json(*pattern)), "; it must be an object"));
  for (const auto& [name, value] : pattern->items()) {
    STRATA_TRY_ASSIGN(const T number, read(json(value), str(key, ".", name)));
    patterns.emplace_back(name, number);
  }
  return {};
}

Status read_patterns(const nlohmann::ordered_json& root, LoraSettings& settings) {
  STRATA_TRY(read_pattern(root, "rank_pattern", settings.rank_pattern,
                          [](const json& value, const std::string& where) -> Result<std::int64_t> {
                            if (value.is_number_integer()) return value.get<std::int64_t>();
                            return corrupt(str(where, " is ", shown(value), "; it must be a whole number"));
                          }));
  return read_pattern(root, "alpha_pattern", settings.alpha_pattern, real_number);
}

// How A and B started changes nothing, unless they belong to another base than the folder's.
Status check_start(const json& start) {
  if (start.is_null() || start.is_boolean()) return {};
  if (!start.is_string())
    return corrupt(str("init_lora_weights is ", shown(start), "; it must be true, false or a name"));
  const std::string text = lowered(start.get<std::string>());
  const auto begins = [&](std::string_view name) { return text.starts_with(name); };
  if (std::any_of(std::begin(kChangesBase), std::end(kChangesBase), begins))
    return unsupported(
        str("init_lora_weights is ", shown(start),
            ": A and B belong to a base from which PEFT has subtracted what they started as; PEFT "
            "converts them by save_pretrained(path_initial_model_for_weight_conversion=...)"));
  if (std::find(std::begin(kKeepsBase), std::end(kKeepsBase), text) != std::end(kKeepsBase)) return {};
  return unsupported(str("init_lora_weights is ", shown(start),
                         "; strata knows the starts of PEFT 0.21: true, false, gaussian, orthogonal, eva and "
                         "mica, and pissa, olora, corda, loftq and lora_ga after a conversion by PEFT"));
}

Status read_dropout(const json& dropout, LoraSettings& settings) {
  if (dropout.is_null()) return {};
  STRATA_TRY_ASSIGN(settings.dropout, real_number(dropout, "lora_dropout"));
  if (settings.dropout >= 0 && settings.dropout < 1) return {};
  return corrupt(str("lora_dropout is ", settings.dropout, "; it must be 0 to below 1"));
}

Status read_bias(const json& bias, LoraSettings& settings) {
  if (bias.is_null()) return {};
  const auto named = bias.is_string() ? LoraSettings::bias_named(bias.get<std::string>()) : std::nullopt;
  if (!named) return corrupt(str("bias is ", shown(bias), "; it must be none, all or lora_only"));
  settings.bias = *named;
  return {};
}

Status read_saved(const json& modules, LoraSettings& settings) {
  if (modules.is_null()) return {};
  for (const json& name : modules.is_array() ? modules : json::array({modules})) {
    if (!name.is_string())
      return corrupt(str("modules_to_save has ", shown(name), "; it must be a list of names"));
    settings.save.push_back(name.get<std::string>());
  }
  return {};
}

Result<TrainedTokens> read_tokens_of(const std::string& module, const json& ids) {
  TrainedTokens tokens{module};
  const std::string where = module.empty() ? "" : "." + module;
  if (!ids.is_array())
    return corrupt(
        str("trainable_token_indices", where, " is ", shown(ids), "; it must be a list of tokens"));
  for (const json& id : ids) {
    if (!id.is_number_integer())
      return corrupt(
          str("trainable_token_indices", where, " has ", shown(id), "; it must be a list of tokens"));
    tokens.ids.push_back(id.get<std::int64_t>());
  }
  return tokens;
}

/// The value is a list, or an object that has one for each module.
Status read_tokens(const json& tokens, LoraSettings& settings) {
  if (tokens.is_null()) return {};
  if (!tokens.is_object()) {
    STRATA_TRY_ASSIGN(settings.tokens.emplace_back(), read_tokens_of("", tokens));
    return {};
  }
  for (const auto& [module, ids] : tokens.items()) {
    STRATA_TRY_ASSIGN(settings.tokens.emplace_back(), read_tokens_of(module, ids));
  }
  return {};
}

/// layers_pattern, which says how the model names its list of layers, follows from the model.
Status read_layers(const json& root, LoraSettings& settings) {
  const json& value = field(root, "layers_to_transform");
  if (value.is_null()) return {};
  for (const json& layer : value.is_array() ? value : json::array({value})) {
    if (!layer.is_number_integer() || layer.get<std::int64_t>() < 0 ||
        layer.get<std::int64_t>() > kMostLayers)
      return corrupt(str("layers_to_transform has ", shown(layer),
                         "; it must be the number of a layer, or a "
                         "list of them"));
    settings.layers.push_back(layer.get<std::int64_t>());
  }
  if (!settings.layers.empty() && field(root, "target_modules").is_string())
    return unsupported(str("layers_to_transform is ", shown(value),
                           ", which PEFT takes with target_modules as a list of names alone"));
  return {};
}

Result<LoraSettings> read_lora(const json& root, const nlohmann::ordered_json& in_order) {
  STRATA_TRY(check_start(field(root, "init_lora_weights")));
  STRATA_TRY(refuse_other_keys(
      root,
      {"peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "target_modules", "target_parameters",
       "exclude_modules", "layers_to_transform", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora",
       "bias", "modules_to_save", "trainable_token_indices", "init_lora_weights"}));
  LoraSettings settings;
  STRATA_TRY(read_dropout(field(root, "lora_dropout"), settings));
  STRATA_TRY(read_bias(field(root, "bias"), settings));
  STRATA_TRY(read_saved(field(root, "modules_to_save"), settings));
  STRATA_TRY(read_tokens(field(root, "trainable_token_indices"), settings));
  STRATA_TRY_ASSIGN(settings.rank, whole_number(root, "r", settings.rank));
  if (const json& alpha = field(root, "lora_alpha"); !alpha.is_null()) {
    STRATA_TRY_ASSIGN(settings.alpha, real_number(alpha, "lora_alpha"));
    if (settings.alpha == 0) return unsupported("lora_alpha is 0, with which the adapter changes nothing");
  }
  STRATA_TRY_ASSIGN(settings.rslora, flag(root, "", "use_rslora", false));
  STRATA_TRY_ASSIGN(settings.dora, flag(root, "", "use_dora", false));
  STRATA_TRY(read_names(root, "target_modules", settings.targets));
  STRATA_TRY(read_parameters(field(root, "target_parameters"), settings));
  STRATA_TRY(read_names(root, "exclude_modules", settings.exclude));
  STRATA_TRY(read_layers(root, settings));
  STRATA_TRY(read_patterns(in_order, settings));
  return settings;
}

}  // namespace

// Whatever is not read must say that it is not used: false, null, 0, "" or empty.
Status refuse_other_keys(const json& root, std::initializer_list<const char*> read) {
  const auto is_among = [](const std::string& key, std::span<const char* const> keys) {
    return std::any_of(keys.begin(), keys.end(), [&](const char* known) { return key == known; });
  };
  std::string problems;
  for (const auto& [key, value] : root.items()) {
    if (is_among(key, kIgnored) || is_among(key, {read.begin(), read.size()}) || !is_set(value)) continue;
    if ((value.is_object() || value.is_array()) && value.empty()) continue;
    problems += str("\n  ", key, " = ", shown(value));
  }
  if (problems.empty()) return {};
  return unsupported(str("strata does not implement what these settings ask for:", problems));
}

Result<std::int64_t> whole_number(const json& root, const char* key, std::int64_t fallback) {
  const json& value = field(root, key);
  if (value.is_null()) return fallback;
  if (!value.is_number_integer())
    return corrupt(str(key, " is ", shown(value), "; it must be a whole number"));
  return value.get<std::int64_t>();
}

Result<double> real_number(const json& value, const std::string& key) {
  if (!value.is_number()) return corrupt(str(key, " is ", shown(value), "; it must be a number"));
  return value.get<double>();
}

Result<PeftConfig> parse_peft_config(const std::string& text) {
  STRATA_TRY_ASSIGN(const json root, parse_strict_json(text));
  if (!root.is_object()) return corrupt("it is not an object");
  if (const json& task = field(root, "task_type"); !task.is_null() && task != "CAUSAL_LM")
    return unsupported(str("task_type is ", shown(task), "; strata trains language models: CAUSAL_LM"));
  PeftConfig config;
  if (field(root, "peft_type") == "LORA") {
    STRATA_TRY_ASSIGN(config.settings, read_lora(root, nlohmann::ordered_json::parse(text)));
  } else {
    STRATA_TRY_ASSIGN(config.settings, read_other_method(root));
  }
  if (const json& base = field(root, "base_model_name_or_path"); base.is_string())
    config.base = base.get<std::string>();
  return config;
}

namespace {

/// In this order, and with "q_proj@3" as the regular expression that says it to PEFT.
template <class T>
nlohmann::ordered_json pattern_object(const std::vector<std::pair<std::string, T>>& patterns) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : patterns) {
    const std::size_t at = name.rfind(LoraSettings::kAtLayer);
    const std::string key =
        at == std::string::npos ? name : str(name.substr(at + 1), "\\.(.*\\.)?", name.substr(0, at));
    if (!object.contains(key)) object[key] = value;
  }
  return object;
}

/// A list is of the token embedding, and an object has modules by their names.
nlohmann::ordered_json token_indices(const std::vector<TrainedTokens>& tokens) {
  if (tokens.size() == 1 && tokens.front().module.empty()) return tokens.front().ids;
  nlohmann::ordered_json value;
  for (const TrainedTokens& each : tokens) value[each.module] = each.ids;
  return value;
}

}  // namespace

std::string peft_config_json(const LoraSettings& settings, const json& modules, const PeftBase& base,
                             bool fan_in_fan_out) {
  nlohmann::ordered_json root;
  root["peft_type"] = "LORA";
  // PEFT takes a class by the task, of text models, or by its name.
  if (base.whole_class.empty()) {
    root["task_type"] = "CAUSAL_LM";
  } else {
    root["task_type"] = nullptr;
    root["auto_mapping"] = {
        {"base_model_class", base.whole_class},
        {"parent_library", str("transformers.models.", base.whole_type, ".modeling_", base.whole_type)}};
  }
  root["base_model_name_or_path"] =
      base.path.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(base.path);
  root["inference_mode"] = true;
  root["r"] = settings.rank;
  // A whole number where it is one, as PEFT writes it.
  if (const auto alpha = static_cast<std::int64_t>(settings.alpha);
      static_cast<double>(alpha) == settings.alpha)
    root["lora_alpha"] = alpha;
  else
    root["lora_alpha"] = settings.alpha;
  root["lora_dropout"] = settings.dropout;
  root["bias"] = settings.bias_name();
  root["use_rslora"] = settings.rslora;
  root["use_dora"] = settings.dora;
  root["fan_in_fan_out"] = fan_in_fan_out;
  root["init_lora_weights"] = true;
  root["target_modules"] = modules;
  if (!settings.parameters.empty()) root["target_parameters"] = settings.parameters;
  if (settings.save.empty())
    root["modules_to_save"] = nullptr;
  else
    root["modules_to_save"] = settings.save;
  root["trainable_token_indices"] = token_indices(settings.tokens);
  root["rank_pattern"] = pattern_object(settings.rank_pattern);
  root["alpha_pattern"] = pattern_object(settings.alpha_pattern);
  return root.dump(2) + "\n";
}

}  // namespace strata::detail
