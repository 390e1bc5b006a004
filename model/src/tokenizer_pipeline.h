#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/model/tokenizer_spec.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Reads what surrounds the model in a tokenizer.json (normalizer, pre-tokenizer, post-processor, decoder)
/// into the spec, whose tokens and added tokens must be there already. Errors: `unsupported` for whatever
/// would change ids or text and is not known here, by name; `corrupt` for a value of the wrong kind.
Status read_pipeline(const nlohmann::json& root, TokenizerSpec& spec);

/// The "type" of a section or of a part of one; empty where it has none.
std::string type_of(const nlohmann::json& part);
Status wrong_kind(std::string_view where, const nlohmann::json& part, std::string_view supported);
/// The parts of a Sequence, or the one part that stands alone.
Result<std::vector<nlohmann::json>> parts_of(const nlohmann::json& part, std::string_view where,
                                             const char* list);

}  // namespace strata::detail
