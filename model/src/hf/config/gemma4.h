// The keys that Gemma 4 has instead of LLaMA's, or beside them.
#pragma once

#include <nlohmann/json.hpp>

#include <strata/model/decoder_config.h>

#include "hf/config/keys.h"

namespace strata::detail {

/// Reads heads, windows, RoPE, experts and the soft cap of logits. What the model computes in another way is
/// refused by its key.
void read_gemma4(Keys& keys, DecoderConfig& config);
/// The same keys of a config with its derived sizes.
nlohmann::json gemma4_json(const DecoderConfig& config);
/// Keys of a file that may state the same in another way than gemma4_json().
inline constexpr const char* kGemma4LayerKeys = "per_layer_config";

}  // namespace strata::detail
