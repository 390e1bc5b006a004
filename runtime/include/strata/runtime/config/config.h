#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <string_view>
#include <vector>

#include <strata/runtime/config/config_schema.h>
#include <strata/runtime/status.h>

namespace strata {

/// Values that the program itself discovered, such as the sizes in a model's directory.
struct ConfigLayer {
  std::string origin;
  std::vector<std::pair<std::string, std::string>> values;  ///< key, text
};

/// Where values come from, lowest precedence first: default < preset < discovered < file < environment <
/// arguments.
struct ConfigSources {
  std::string file = {};  ///< names ending in ".json" are read as JSON, all others as TOML; empty: none
  std::optional<std::string> file_text = {};  ///< if set, used instead of reading `file`
  std::vector<std::string> environment =
      {};  ///< "NAME=value"; names that do not begin with STRATA_ are ignored
  std::vector<std::string> arguments = {};   ///< "memory.device=32MiB"
  std::string preset = {};                   ///< from --preset; has the precedence of the arguments
  std::vector<ConfigLayer> discovered = {};  ///< later layers override earlier ones
};

/// The value of one key and where it came from.
struct ConfigEntry {
  const KeySpec* spec = nullptr;
  /// The value has the alternative of the key's type; it is meaningless while `automatic && !resolved`.
  ConfigValue value = {};
  std::string raw = {};     ///< as the user wrote it
  std::string origin = {};  ///< "default", "preset austen-5m", "file run.toml:12", "environment
                            ///< STRATA_IO_BLOCK", "argument memory.device=32MiB"
  bool automatic = false;   ///< the value was given as "auto"
  bool resolved = false;    ///< "auto" has been replaced by a value
  std::string why = {};     ///< why that value was chosen
};

/// Every key of a schema with its value. Values may be read from any thread once resolve() is no longer
/// called. Asking for a key that the schema lacks, or for another type than the key's, is a bug and asserts.
class ConfigTree {
 public:
  /// Reads all layers. The problems of all layers are collected into one Status, one line each, prefixed with
  /// its origin. Errors: `invalid`; `not_found` or `io_error` if reading the file is the only problem.
  static Result<ConfigTree> build(const ConfigSchema& schema, const ConfigSources& sources);

  bool flag(std::string_view key) const { return get<bool>(key); }
  std::int64_t integer(std::string_view key) const { return get<std::int64_t>(key); }
  double number(std::string_view key) const { return get<double>(key); }
  double seconds(std::string_view key) const { return get<double>(key); }
  std::uint64_t bytes(std::string_view key) const { return get<std::uint64_t>(key); }
  const std::string& text(std::string_view key) const { return get<std::string>(key); }
  StepRange steps(std::string_view key) const { return get<StepRange>(key); }
  const std::vector<std::string>& texts(std::string_view key) const {
    return get<std::vector<std::string>>(key);
  }
  const std::vector<double>& numbers(std::string_view key) const { return get<std::vector<double>>(key); }

  /// Whether the key is `auto` and not yet resolved; getters assert until it is.
  bool is_auto(std::string_view key) const;
  /// Sets the value of an `auto` key and the reason that is printed beside it. Asserts if the key is not
  /// `auto`: a value set by the user is never replaced.
  void resolve(std::string_view key, ConfigValue value, std::string why);

  /// Replaces every non-empty path value (KeySpec::is_path) by `map(entry, path)`.
  void map_paths(const std::function<std::string(const ConfigEntry& entry, const std::string& path)>& map);

  /// Replaces the elements of a text_list, which keeps its origin.
  void replace_texts(std::string_view key, std::vector<std::string> texts);

  const ConfigEntry& entry(std::string_view key) const;
  std::span<const ConfigEntry> entries() const noexcept { return entries_; }  ///< in schema order

  /// The content of config.resolved.toml: every key, with `auto` replaced by its value where that is known.
  /// With origins, each line ends in a comment that names the origin. Reading it back gives the same values.
  std::string to_toml(bool with_origins) const;
  /// The same tree as JSON. With origins each value is an object {"value", "origin", "auto", "why"}, for
  /// programs to read.
  std::string to_json(bool with_origins) const;
  /// The value of a key as a file has it: 3, "text", [1, 2].
  std::string shown(std::string_view key) const;

 private:
  template <class T>
  const T& get(std::string_view key) const;

  std::vector<ConfigEntry> entries_;
};

/// Joins the problems into an `invalid` Status, one line each; ok if there are none.
Status config_problems(const std::vector<std::string>& problems);

}  // namespace strata
