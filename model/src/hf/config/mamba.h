#pragma once

#include <nlohmann/json.hpp>

#include <strata/model/decoder_config.h>

#include "hf/config/keys.h"
#include "family/family.h"

/// The keys of Mamba-2 in the config.json of Granite 4, Falcon-H1 and Nemotron-H.
namespace strata::detail {

/// The word of layer_types for a mixer.
const char* type_of(Mixer mixer);
/// Returns a config.json with the list of layers and their number, for which older files of Nemotron-H have a
/// pattern of letters.
json with_layer_types(json root);

/// Each reads its keys into `c`; unsupported settings are added to `k`.
void read_mamba(Keys& k, DecoderConfig& c, HfMixers how);
/// RoPE, which a Granite 4 may have.
void read_granite_rope(Keys& k, DecoderConfig& c);
/// Falcon-H1's constant factors.
void read_hybrid_factors(Keys& k, DecoderConfig& c);
/// Nemotron-H's sizes.
void read_nemotron(Keys& k, DecoderConfig& c);
/// The keys that these read.
json mamba_json(const DecoderConfig& c, HfMixers how);
json nemotron_json(const DecoderConfig& c);

}  // namespace strata::detail
