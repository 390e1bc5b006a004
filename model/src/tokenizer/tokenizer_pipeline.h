#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/model/tokenizer_spec.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Reads the sections of a tokenizer.json other than the model (normalizer, pre-tokenizer, post-processor,
/// decoder) into the spec, whose tokens and added tokens must be set already. Errors: `unsupported` with the
/// name of anything unknown that would change ids or text; `corrupt` for a value of the wrong type.
Status read_pipeline(const nlohmann::json& root, TokenizerSpec& spec);

/// The "type" of a section or of a part of one; empty if it has none.
std::string type_of(const nlohmann::json& part);
Status wrong_kind(std::string_view where, const nlohmann::json& part, std::string_view supported);
/// The parts of a Sequence, or the part itself if it is no Sequence.
Result<std::vector<nlohmann::json>> parts_of(const nlohmann::json& part, std::string_view where,
                                             const char* list);

}  // namespace strata::detail
