#pragma once

#include <nlohmann/json.hpp>

#include <strata/model/decoder.h>

#include "config_keys.h"

/// RoPE as a config.json has it: a base, a scaling, of some families both once more for sliding layers.
namespace strata::detail {

/// Bases, scalings and how much of a head is turned; `c` has its other sizes. What is not computed here goes
/// to `k`.
void read_rope(Keys& k, DecoderConfig& c);
/// The keys that read_rope() reads.
nlohmann::json rope_json(const DecoderConfig& c);

/// A float as the shortest decimal that reads back as it: 1e-05 and not 9.999999747378752e-06.
double decimal(float x);

}  // namespace strata::detail
