#pragma once

#include <nlohmann/json.hpp>

#include <strata/text/tokenizer_spec.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Reads the sections of a tokenizer.json other than the model (normalizer, pre-tokenizer, post-processor,
/// decoder) into the spec, whose tokens and added tokens must be set already. Errors: `unsupported` with the
/// name of anything unknown that would change ids or text; `corrupt` for a value of the wrong type.
Status read_pipeline(const nlohmann::json& root, TokenizerSpec& spec);

}  // namespace strata::detail
