#pragma once

#include <string>

#include <strata/model/decoder_config.h>
#include <strata/runtime/dtype.h>

namespace strata::detail {

/// The config.json of the whole model `source` with the text model `config`, whose weights are of `dtype`. It
/// says of the text model what `source` does but for what differs in `config`.
std::string whole_config_json(const DecoderConfig& config, DType dtype, const std::string& source);

}  // namespace strata::detail
