#pragma once

#include <string>

#include <strata/model/adapter/lora.h>
#include <strata/runtime/status.h>

namespace strata::detail {

struct PeftConfig {
  LoraSettings settings;
  std::string base;
};
/// Reads adapter_config.json. Keys with which PEFT only says where a file comes from are ignored; every other
/// one that strata does not implement must have its default. Errors: `corrupt`, `unsupported`, with the key.
Result<PeftConfig> parse_peft_config(const std::string& text);
/// The text of adapter_config.json. `modules`: what target_modules lists.
std::string peft_config_json(const LoraSettings& settings, const std::vector<std::string>& modules,
                             const std::string& base, bool fan_in_fan_out);

}  // namespace strata::detail
