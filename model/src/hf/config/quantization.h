#pragma once

#include <strata/model/decoder_config.h>

#include "hf/config/keys.h"

namespace strata::detail {

/// Reads quantization_config, and refuses what no form of files has. The files say which matrices are
/// quantized; that only those of experts are, is a property of the model.
void read_quantization(Keys& keys, DecoderConfig& config);

}  // namespace strata::detail
