#pragma once

#include <nlohmann/json.hpp>

#include <strata/model/decoder_config.h>

#include "hf/config/keys.h"

/// RoPE in a config.json: a base and a scaling; in some families a second pair for sliding layers.
namespace strata::detail {

/// Reads bases, scalings and rotary_dim; the other sizes of `c` are set already. Unsupported settings are
/// added to `k`.
void read_rope(Keys& k, DecoderConfig& c);
/// Returns the keys that read_rope() reads.
nlohmann::json rope_json(const DecoderConfig& c);

/// A float as the shortest decimal that parses to the same float: 1e-05 and not 9.999999747378752e-06.
double decimal(float x);

}  // namespace strata::detail
