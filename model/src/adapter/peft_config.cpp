#include "adapter/peft_config.h"

#include <algorithm>
#include <cctype>
#include <span>

#include <nlohmann/json.hpp>

#include <strata/runtime/str.h>

#include "text/json_fields.h"
#include "text/strict_json.h"

namespace strata::detail {
namespace {

using nlohmann::json;

// What changes nothing here: where the adapter comes from, and how PEFT treats the object that it loads.
// fan_in_fan_out says how the base stores its matrices, which its family says, too.
constexpr const char* kIgnored[] = {"auto_mapping",   "base_model_name_or_path", "fan_in_fan_out",
                                    "inference_mode", "layers_pattern",          "megatron_core",
                                    "peft_version",   "qalora_group_size",       "revision"};
constexpr std::int64_t kMostLayers = 1 << 20;
// Starts with which PEFT subtracts from the base what A and B start as, and the others; in any case of
// letters.
constexpr std::string_view kChangesBase[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
constexpr std::string_view kKeepsBase[] = {"gaussian", "orthogonal", "eva", "mica"};

/// A pattern as strata writes names: PEFT's are regular expressions, but a name, also one with escaped dots
/// and anchors, is one of a module. "^" makes it a whole name. Other expressions are refused.
Result<std::string> pattern_name(const std::string& key, const std::string& pattern) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool is_dot = pattern.compare(i, 2, "\\.") == 0;
    const bool is_anchor = (i == 0 && pattern[i] == '^') || (i + 1 == pattern.size() && pattern[i] == '$');
    if (!is_dot && !is_anchor && std::string_view("*+?[](){}|\\^$@").find(pattern[i]) != std::string::npos)
      return unsupported(str(key, ": '", pattern,
                             "' is a regular expression; strata takes names of modules or their last parts, "
                             "also with ^ and $"));
    i += is_dot ? 1 : 0;
    if (pattern[i] != '$') name += pattern[i];
  }
  return name;
}

Status read_targets(const json& value, std::vector<std::string>& targets) {
  if (value.is_null()) return {};
  if (value.is_string()) {
    targets = {value.get<std::string>()};
    if (targets[0] == LoraSettings::kAllLinear) return {};
    return unsupported(str("target_modules = ", shown(value),
                           " is a regular expression; strata takes a list of names, or ",
                           LoraSettings::kAllLinear));
  }
  if (!value.is_array())
    return corrupt(str("target_modules is ", shown(value), "; it must be a list of names"));
  for (const json& name : value) {
    if (!name.is_string())
      return corrupt(str("target_modules has ", shown(name), "; it must be a list of names"));
    targets.push_back(name.get<std::string>());
  }
  return {};
}

Status read_patterns(const json& root, LoraSettings& settings) {
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    const json& pattern = field(root, key);
    if (pattern.is_null()) continue;
    if (!pattern.is_object()) return corrupt(str(key, " is ", shown(pattern), "; it must be an object"));
    for (const auto& [name, value] : pattern.items()) {
      STRATA_TRY_ASSIGN(const std::string module, pattern_name(key, name));
      const std::string where = str(key, ".", name);
      const bool is_alpha = std::string_view(key) == "alpha_pattern";
      if (is_alpha ? settings.alpha_pattern.contains(module) : settings.rank_pattern.contains(module))
        return unsupported(str(key, " names ", module, " twice; which of them counts is left to the order"));
      if (is_alpha) {
        STRATA_TRY_ASSIGN(settings.alpha_pattern[module], real_number(value, where));
      } else if (value.is_number_integer()) {
        settings.rank_pattern[module] = value.get<std::int64_t>();
      } else {
        return corrupt(str(where, " is ", shown(value), "; it must be a whole number"));
      }
    }
  }
  return {};
}

// How A and B started changes nothing, unless they belong to another base than the folder's.
Status check_start(const json& start) {
  if (start.is_null() || start.is_boolean()) return {};
  if (!start.is_string())
    return corrupt(str("init_lora_weights is ", shown(start), "; it must be true, false or a name"));
  std::string text = start.get<std::string>();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
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

// Dropout acts in training only, which says that it is left out.
Status check_dropout(const json& dropout) {
  if (dropout.is_null()) return {};
  STRATA_TRY_ASSIGN(const double share, real_number(dropout, "lora_dropout"));
  if (share >= 0 && share <= 1) return {};
  return corrupt(str("lora_dropout is ", share, "; it must be 0 to 1"));
}

/// Limits the targets to layers, as PEFT does unless the list is empty. layers_pattern, which says how the
/// model names its list of layers, follows from the model.
Status read_layers(const json& value, std::vector<std::string>& targets) {
  if (value.is_null()) return {};
  std::vector<std::int64_t> layers;
  for (const json& layer : value.is_array() ? value : json::array({value})) {
    if (!layer.is_number_integer() || layer.get<std::int64_t>() < 0 ||
        layer.get<std::int64_t>() > kMostLayers)
      return corrupt(str("layers_to_transform has ", shown(layer),
                         "; it must be the number of a layer, or a "
                         "list of them"));
    layers.push_back(layer.get<std::int64_t>());
  }
  if (layers.empty()) return {};
  if (targets.empty() || targets[0] == LoraSettings::kAllLinear)
    return unsupported("layers_to_transform needs target_modules to be a list of names");
  std::vector<std::string> limited;
  for (const std::string& target : targets)
    for (const std::int64_t layer : layers) limited.push_back(str(target, LoraSettings::kAtLayer, layer));
  targets = std::move(limited);
  return {};
}

Result<LoraSettings> read_lora(const json& root) {
  if (const json& bias = field(root, "bias"); !bias.is_null() && bias != "none")
    return unsupported(str("bias is ", shown(bias), "; strata does not train biases with an adapter: none"));
  STRATA_TRY(check_start(field(root, "init_lora_weights")));
  STRATA_TRY(check_dropout(field(root, "lora_dropout")));
  STRATA_TRY(refuse_other_keys(
      root,
      {"peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "target_modules", "layers_to_transform",
       "rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "bias", "init_lora_weights"}));
  LoraSettings settings;
  STRATA_TRY_ASSIGN(settings.rank, whole_number(root, "r", settings.rank));
  if (const json& alpha = field(root, "lora_alpha"); !alpha.is_null()) {
    STRATA_TRY_ASSIGN(settings.alpha, real_number(alpha, "lora_alpha"));
    if (settings.alpha == 0) return unsupported("lora_alpha is 0, with which the adapter changes nothing");
  }
  STRATA_TRY_ASSIGN(settings.rslora, flag(root, "", "use_rslora", false));
  STRATA_TRY_ASSIGN(settings.dora, flag(root, "", "use_dora", false));
  STRATA_TRY(read_targets(field(root, "target_modules"), settings.targets));
  STRATA_TRY(read_layers(field(root, "layers_to_transform"), settings.targets));
  STRATA_TRY(read_patterns(root, settings));
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
    STRATA_TRY_ASSIGN(config.settings, read_lora(root));
  } else {
    STRATA_TRY_ASSIGN(config.settings, read_other_method(root));
  }
  if (const json& base = field(root, "base_model_name_or_path"); base.is_string())
    config.base = base.get<std::string>();
  return config;
}

std::string peft_config_json(const LoraSettings& settings, const std::vector<std::string>& modules,
                             const std::string& base, bool fan_in_fan_out) {
  nlohmann::ordered_json root;
  root["peft_type"] = "LORA";
  root["task_type"] = "CAUSAL_LM";
  root["base_model_name_or_path"] = base.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(base);
  root["inference_mode"] = true;
  root["r"] = settings.rank;
  // A whole number where it is one, as PEFT writes it.
  if (const auto alpha = static_cast<std::int64_t>(settings.alpha);
      static_cast<double>(alpha) == settings.alpha)
    root["lora_alpha"] = alpha;
  else
    root["lora_alpha"] = settings.alpha;
  root["lora_dropout"] = 0.0;
  root["bias"] = "none";
  root["use_rslora"] = settings.rslora;
  root["use_dora"] = settings.dora;
  root["fan_in_fan_out"] = fan_in_fan_out;
  root["init_lora_weights"] = true;
  root["target_modules"] = modules;
  root["modules_to_save"] = nullptr;
  root["rank_pattern"] = settings.rank_pattern;
  root["alpha_pattern"] = settings.alpha_pattern;
  return root.dump(2) + "\n";
}

}  // namespace strata::detail
