#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "table.h"

// Functions from which the conversions of rows are made.
namespace strata::detail {

inline Outcome taken(std::string key, const Json& value, std::string reason = {}) {
  return {DsVerdict::taken, {{std::move(key), value.dump()}}, std::move(reason)};
}
inline Outcome meaningless(std::string reason) { return {DsVerdict::meaningless, {}, std::move(reason)}; }
inline Outcome refused(std::string reason) { return {DsVerdict::refused, {}, std::move(reason)}; }

/// The first of the row's keys of strata.
std::string first_key(const TableRow& row);

/// Whether `value` is a number without a fraction, also one that is written as 5e8.
bool is_integer(const Json& value);
/// "must be an integer from 1 to 4096", as a refusal.
Outcome not_in_range(const TableRow& row, std::string_view kind);
/// Refused, unless `value` is a boolean.
Outcome not_a_boolean();

// Conversions that rows name.
Outcome to_integer(const TableRow& row, const Json& value, const Document& document);
Outcome to_number(const TableRow& row, const Json& value, const Document& document);

}  // namespace strata::detail
