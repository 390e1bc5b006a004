// The reverse of add_architecture(): a model's config from the metadata of a GGUF file.
#pragma once

#include <strata/model/decoder_config.h>
#include <strata/runtime/status.h>

#include "gguf/architecture.h"
#include <strata/runtime/io/gguf/reader.h>

namespace strata::detail {

/// The config of the model in a file, whose head is tied if the file has no other. Errors: `corrupt` for a
/// key that is missing or has a wrong type; `unsupported` for another architecture, or a key that changes
/// what is computed and is not known; each by name, all at once.
Result<DecoderConfig> config_from_gguf(const GgufReader& file);

/// Finds the setting that llama3_factors() computed `factors` from; false if there is none. The scaling has
/// the same factors for any multiple of its three settings, so low_freq_factor is 1.
bool find_llama3_scaling(std::span<const float> factors, std::int64_t rotary_dim, RopeFrequencies& f);

}  // namespace strata::detail
