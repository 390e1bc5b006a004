#pragma once

#include <nlohmann/json.hpp>

#include <strata/model/tokenizer_spec.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Reads what surrounds the model in a tokenizer.json (normalizer, pre-tokenizer, post-processor, decoder)
/// into the spec, whose tokens and added tokens must be there already. Errors: `unsupported` for whatever
/// would change ids or text and is not known here, by name; `corrupt` for a value of the wrong kind.
Status read_pipeline(const nlohmann::json& root, TokenizerSpec& spec);

}  // namespace strata::detail
