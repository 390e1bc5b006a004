#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/adapter/lora.h>
#include <strata/model/decoder_config.h>
#include <strata/runtime/status.h>

namespace strata {

/// Which matrices of a model are trained in subspaces of their gradients (GaLore; Zhao et al. 2024, arXiv
/// 2403.03507). Module names are those of the Hugging Face model.
struct GaloreSettings {
  std::int64_t rank = 128;
  std::vector<std::string> targets = {LoraSettings::kAllLinear};  ///< as LoraSettings::targets
  friend bool operator==(const GaloreSettings&, const GaloreSettings&) = default;
};

/// The groups of the modules that the settings choose, as add_lora() takes them, each with a basis. It is of
/// the shorter side of a module's matrix: of its rows if it has at least as many rows as columns in the
/// Hugging Face model's layout, as in galore-torch, else of its columns. Errors: those of lora_targets().
Result<std::vector<LoraGroup>> galore_groups(const DecoderConfig& config, const GaloreSettings& settings);

}  // namespace strata
