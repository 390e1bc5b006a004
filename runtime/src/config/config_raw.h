#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/config/config_schema.h>
#include <strata/runtime/status.h>

// The readers of the layers pass these values to the schema; they are not yet matched with any key.
namespace strata::detail {

/// How a scalar was written. `untyped` is text from the environment or the command line.
enum class RawKind : std::uint8_t { untyped, text, boolean, integer, number, other };

struct RawScalar {
  RawKind kind = RawKind::untyped;
  std::string text;
};

struct RawValue {
  bool is_list = false;
  std::vector<RawScalar> items;  // exactly one unless is_list
};

struct RawAssignment {
  std::string section;
  std::string key;
  RawValue value;
  std::string origin;
};

/// The result of a reader; `problems` are complete lines that start with their origin.
struct RawLayer {
  std::vector<RawAssignment> assignments;
  std::vector<std::string> problems;
};

/// Neither throws; text that does not parse is reported as one problem with its line.
void read_toml(std::string_view text, std::string_view origin, RawLayer& into);
void read_json(std::string_view text, std::string_view origin, RawLayer& into);

/// Parses `raw` as a value of this key's type, without `auto`. Errors: `invalid`, saying what the key
/// expects.
Result<ConfigValue> parse_value(const KeySpec& spec, const RawValue& raw);
/// Prints one value as TOML; all values that are printed are valid JSON too.
std::string print_value(const KeySpec& spec, const ConfigValue& value);
std::string print_raw(const RawValue& raw);
/// Shortens an origin or a value for display: one line, no control characters, limited length.
std::string one_line(std::string_view text);

}  // namespace strata::detail
