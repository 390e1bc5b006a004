#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <strata/model/adapter/lora.h>

namespace strata::detail {

enum class RankLimit : std::uint8_t {
  of_peft,   ///< any: B A has no higher rank than the matrix, but PEFT allows more columns
  of_matrix  ///< its shorter side: a basis has no more columns than its space has dimensions
};
/// The name that messages give to the settings of a folder of PEFT's.
inline constexpr std::string_view kPeftSection = "adapter_config.json";
/// lora_targets() with a limit of ranks.
Result<std::vector<LoraTarget>> choose_modules(const DecoderConfig& config, const LoraSettings& settings,
                                               std::string_view section, RankLimit limit);

}  // namespace strata::detail
