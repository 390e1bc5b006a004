#pragma once

#include <strata/model/decoder_config.h>

#include "hf/config/keys.h"

namespace strata::detail {

/// Reads the keys of mixtures of experts in a config.json: sizes, the router's rule, and which layers are
/// dense. The number of layers and the width of MLPs are set already. Unsupported settings are added to `k`.
void read_experts(Keys& k, DecoderConfig& c);

}  // namespace strata::detail
