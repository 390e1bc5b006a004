// The form that the sections of a tokenizer.json share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/runtime/status.h>

namespace strata::detail {

/// The "type" of a section or of a part of one; empty if it has none.
std::string type_of(const nlohmann::json& part);
Status wrong_kind(std::string_view where, const nlohmann::json& part, std::string_view supported);
/// The parts of a Sequence, or the part itself if it is no Sequence.
Result<std::vector<nlohmann::json>> parts_of(const nlohmann::json& part, std::string_view where,
                                             const char* list);

}  // namespace strata::detail
