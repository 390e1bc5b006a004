#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/ds_config/ds_config.h>
#include <strata/runtime/status.h>

namespace strata {

/// The conversion of a trainer's YAML file. The findings are those of ds_config: they print alike.
struct YamlConversion {
  std::string trainer;  ///< "axolotl" or "LLaMA-Factory"
  std::vector<DsFinding> findings;
};

/// Converts a configuration of axolotl, known by its `base_model`, or of LLaMA-Factory, by its
/// `model_name_or_path`. Findings come in the order of the file, and then the trainer's defaults that are not
/// strata's. A key that is refused or unknown does not end the conversion: the rest is what strata takes.
/// Errors: `invalid` with the line for what is not one mapping of YAML, and for a file of neither.
Result<YamlConversion> convert_trainer_yaml(std::string_view yaml);

/// The keys of strata that conversions may set; a test compares them with the schema.
std::vector<std::string> yaml_config_strata_keys();

}  // namespace strata
