#pragma once

#include <initializer_list>
#include <string>

#include <nlohmann/json.hpp>

#include <strata/model/adapter/adapter_settings.h>
#include <strata/model/decoder_config.h>
#include <strata/runtime/status.h>

namespace strata::detail {

struct PeftConfig {
  AdapterSettings settings;
  std::string base;
};
/// Reads adapter_config.json. Keys with which PEFT only says where a file comes from are ignored; every other
/// one that strata does not implement must have its default. Errors: `corrupt`, `unsupported`, with the key.
Result<PeftConfig> parse_peft_config(const std::string& text);
/// What adapter_config.json says of the model that an adapter is over.
struct PeftBase {
  std::string path;
  /// The class of a whole model, which PEFT's AutoPeftModel loads then, and its model_type; empty for a text
  /// model.
  std::string whole_class = {}, whole_type = {};
};
/// The text of adapter_config.json of LoRA. `modules`: what target_modules is.
std::string peft_config_json(const LoraSettings& settings, const nlohmann::json& modules,
                             const PeftBase& base, bool fan_in_fan_out);
/// The text of adapter_config.json of another method.
std::string adapter_config_json(const DecoderConfig& config, const AdapterSettings& settings,
                                const std::string& base);

// The methods share these functions.

/// The settings of a method whose peft_type is not LORA. Errors: `unsupported` if strata does not have it,
/// and those of reading.
Result<AdapterSettings> read_other_method(const nlohmann::json& root);
/// Errors: `unsupported` with every key that is set, and neither among `read` nor one that changes nothing.
Status refuse_other_keys(const nlohmann::json& root, std::initializer_list<const char*> read);
/// Errors: `corrupt` if the value is no whole number.
Result<std::int64_t> whole_number(const nlohmann::json& root, const char* key, std::int64_t fallback);
Result<double> real_number(const nlohmann::json& value, const std::string& key);

}  // namespace strata::detail
