#pragma once

#include <cstdint>

#include <strata/kernels/quantized_matrix.h>
#include <strata/model/adapter/adapter_settings.h>
#include <strata/runtime/status.h>

// What a run trains of its model, and what of it stays as it was.

namespace strata {

struct TrainConfig;

/// What a step changes.
enum class TrainedPart : std::uint8_t {
  parameters,  ///< the model's own, except those that train.freeze names
  adapters,    ///< the model itself is frozen
  subspaces,   ///< matrices change in subspaces of their gradients, all other parameters as a whole
};
TrainedPart trained_part(const TrainConfig& config) noexcept;
/// Whether some parameters are not trained.
bool freezes(const TrainConfig& config);
/// Whether checkpoints hold frozen parameters. Those of adapters leave them out if all of them are in the
/// folder model.from, where they are read again.
bool saves_frozen(const TrainConfig& config);
/// How train.base stores the matrices of a frozen base.
kernels::WeightFormat base_format(const TrainConfig& config) noexcept;
/// The settings of section `adapter` for its method, which is not `none`. Errors: `invalid`, all patterns
/// that are not NAME=NUMBER at once.
Result<AdapterSettings> adapter_settings(const TrainConfig& config);
/// The settings of method `lora`.
Result<LoraSettings> lora_settings(const TrainConfig& config);
/// Whether the training program drops out what adapters read.
bool has_dropout(const TrainConfig& config) noexcept;
/// The virtual tokens that the run's adapter puts before each sequence; 0 for methods without.
std::int64_t virtual_tokens(const TrainConfig& config) noexcept;

}  // namespace strata
