#pragma once

#include <optional>
#include <string>

#include <strata/runtime/status.h>

namespace strata::detail {

/// The value of "adapter" of a record: a name; empty if it is null, for no adapter; nullopt if there is none.
/// Errors: `invalid` for a value of another type and an empty name.
template <class Json>
Result<std::optional<std::string>> adapter_choice(const Json& record) {
  const auto found = record.find("adapter");
  if (found == record.end()) return std::optional<std::string>();
  if (found->is_null()) return std::optional<std::string>(std::string());
  if (!found->is_string() || found->template get_ref<const std::string&>().empty())
    return Status::error(Code::invalid, "'adapter' is neither a name nor null");
  return std::optional<std::string>(found->template get<std::string>());
}

}  // namespace strata::detail
