#include "conversions.h"

#include <cmath>
#include <cstdint>

#include <strata/runtime/str.h>

namespace strata::detail {

std::string first_key(const TableRow& row) {
  return std::string(row.row.strata_keys.substr(0, row.row.strata_keys.find(' ')));
}

bool is_integer(const Json& value) {
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return std::trunc(number) == number && std::abs(number) <= 9007199254740992.0;
}

Outcome not_in_range(const TableRow& row, std::string_view kind) {
  return refused(str("it must be ", kind, " from ", row.min, " to ", row.max));
}

Outcome not_a_boolean() { return refused("it must be true or false"); }

Outcome to_integer(const TableRow& row, const Json& value, const Document&) {
  if (!is_integer(value) || value.get<double>() < row.min || value.get<double>() > row.max)
    return not_in_range(row, "an integer");
  return taken(first_key(row), value.get<std::int64_t>());
}

Outcome to_number(const TableRow& row, const Json& value, const Document&) {
  if (!value.is_number() || value.get<double>() < row.min || value.get<double>() > row.max)
    return not_in_range(row, "a number");
  return taken(first_key(row), value);
}

}  // namespace strata::detail
