#include "adapter/peft_config.h"

#include <algorithm>
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
// Starts with which PEFT subtracts from the base what A and B start as.
constexpr std::string_view kChangesBase[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

// A pattern that is a regular expression, and no name, is refused.
Status check_name(const std::string& key, const std::string& name) {
  if (name.find_first_of("*+?[](){}|\\^$") == std::string::npos) return {};
  return unsupported(
      str(key, ": '", name, "' is a regular expression; strata takes names of modules or their last parts"));
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
      STRATA_TRY(check_name(key, name));
      const std::string where = str(key, ".", name);
      if (std::string_view(key) == "alpha_pattern") {
        STRATA_TRY_ASSIGN(settings.alpha_pattern[name], real_number(value, where));
      } else if (value.is_number_integer()) {
        settings.rank_pattern[name] = value.get<std::int64_t>();
      } else {
        return corrupt(str(where, " is ", shown(value), "; it must be a whole number"));
      }
    }
  }
  return {};
}

// How A and B started changes nothing, unless they belong to another base than the folder's.
Status check_start(const json& start) {
  if (!start.is_string()) return {};
  const auto text = start.get<std::string>();
  if (std::none_of(std::begin(kChangesBase), std::end(kChangesBase),
                   [&](std::string_view name) { return text.starts_with(name); }))
    return {};
  return unsupported(
      str("init_lora_weights is ", shown(start),
          ": A and B belong to a base from which PEFT has subtracted what they started as; PEFT "
          "converts them by save_pretrained(path_initial_model_for_weight_conversion=...)"));
}

Result<LoraSettings> read_lora(const json& root) {
  if (const json& bias = field(root, "bias"); !bias.is_null() && bias != "none")
    return unsupported(str("bias is ", shown(bias), "; strata does not train biases with an adapter: none"));
  STRATA_TRY(check_start(field(root, "init_lora_weights")));
  STRATA_TRY(
      refuse_other_keys(root, {"peft_type", "task_type", "r", "lora_alpha", "target_modules", "rank_pattern",
                               "alpha_pattern", "use_rslora", "use_dora", "bias", "init_lora_weights"}));
  LoraSettings settings;
  STRATA_TRY_ASSIGN(settings.rank, whole_number(root, "r", settings.rank));
  if (const json& alpha = field(root, "lora_alpha"); !alpha.is_null()) {
    STRATA_TRY_ASSIGN(settings.alpha, real_number(alpha, "lora_alpha"));
  }
  STRATA_TRY_ASSIGN(settings.rslora, flag(root, "", "use_rslora", false));
  STRATA_TRY_ASSIGN(settings.dora, flag(root, "", "use_dora", false));
  STRATA_TRY(read_targets(field(root, "target_modules"), settings.targets));
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
