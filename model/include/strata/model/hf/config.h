#pragma once

#include <string>

#include <strata/model/decoder.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata {

/// What a Hugging Face config.json says of a model. `seq` stays 0: how long a sequence is, the run decides,
/// up to `positions`, which is 0 where the model sets no limit. Errors: `corrupt` for text that is no JSON,
/// `invalid` for values of a wrong kind, `unsupported` for an architecture or a setting that changes what the
/// model computes and that this build does not have; each with the key. All at once.
Result<DecoderConfig> decoder_from_hf_config(const std::string& json);

/// The config.json of `config` in the layout its family has there, with `dtype` as the weights' type. What
/// the model's own config.json says beside (token ids above all: a family's defaults are those of its first
/// model) is carried over from `source`; without one the token ids are null.
std::string hf_config_json(const DecoderConfig& config, DType dtype, const std::string& source = {});

}  // namespace strata
