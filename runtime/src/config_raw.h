#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/config.h>

// What the readers of the layers hand to the schema: values not yet compared with any key.
namespace strata::detail {

/// How a scalar was written. `untyped` is text from the environment or the command line.
enum class RawKind : std::uint8_t { untyped, text, boolean, integer, number, other };

struct RawScalar {
  RawKind kind = RawKind::untyped;
  std::string text;
};

struct RawValue {
  bool is_list = false;
  std::vector<RawScalar> items;  // exactly one where it is no list
};

struct RawAssignment {
  std::string section;
  std::string key;
  RawValue value;
  std::string origin;
};

/// What a reader found; `problems` are whole lines with their origin.
struct RawLayer {
  std::vector<RawAssignment> assignments;
  std::vector<std::string> problems;
};

/// Neither throws; a text that does not parse is one problem with its line.
void read_toml(std::string_view text, std::string_view origin, RawLayer& into);
void read_json(std::string_view text, std::string_view origin, RawLayer& into);

/// The value of `raw` for a key of this type, without `auto`. Errors: `invalid`, saying what the key expects.
Result<ConfigValue> parse_value(const KeySpec& spec, const RawValue& raw);
/// One value as TOML, which for all we print is JSON too.
std::string print_value(const KeySpec& spec, const ConfigValue& value);
std::string print_raw(const RawValue& raw);

}  // namespace strata::detail
