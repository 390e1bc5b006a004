#pragma once

#include <string>

#include <strata/model/decoder_config.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata::detail {

struct WholeModel;

/// The kind of the model with this config.json. Errors: `invalid` for that of a text model; `corrupt`.
Result<const WholeModel*> kind_of_whole(const std::string& config_json);

/// The config.json of the whole model `source` with the text model `config`, whose weights are of `dtype`. It
/// says of the text model what `source` does but for what differs in `config`.
std::string whole_config_json(const DecoderConfig& config, DType dtype, const std::string& source);

}  // namespace strata::detail
