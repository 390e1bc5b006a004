#pragma once

#include <nlohmann/json.hpp>

#include <strata/model/decoder_config.h>

#include "hf/config/keys.h"

/// The layers of a config.json that are no attention, in families that have such.
namespace strata::detail {

/// Reads which layers have which mixer and the sizes of the others than attention. The sizes of attention and
/// the number of layers are set already. Unsupported settings are added to `k`.
void read_mixers(Keys& k, DecoderConfig& c);
/// Returns the keys that read_mixers() reads.
nlohmann::json mixers_json(const DecoderConfig& c);

}  // namespace strata::detail
