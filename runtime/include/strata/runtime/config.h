#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <string_view>
#include <variant>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// What a key holds, and the alternative of ConfigValue that carries it.
enum class KeyType : std::uint8_t {
  boolean,      ///< bool
  integer,      ///< std::int64_t
  number,       ///< double, finite
  text,         ///< std::string
  bytes,        ///< std::uint64_t: "32MiB" or a count; kUnlimitedBytes for the key's word
  seconds,      ///< double: "90s" or a number; +infinity for the key's word
  steps,        ///< StepRange: false, true, "10" or "10-12"
  choice,       ///< std::string, one of the key's choices
  text_list,    ///< std::vector<std::string>
  number_list,  ///< std::vector<double>
};

inline constexpr std::uint64_t kUnlimitedBytes = std::numeric_limits<std::uint64_t>::max();

/// Steps from `first` to `last`, both included; empty where last < first.
struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 0;
  bool empty() const noexcept { return last < first; }
  bool contains(std::int64_t step) const noexcept { return first <= step && step <= last; }
  friend bool operator==(const StepRange&, const StepRange&) = default;
};
inline constexpr StepRange kAllSteps = {1, std::numeric_limits<std::int64_t>::max()};

using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::uint64_t, StepRange,
                                 std::vector<std::string>, std::vector<double>>;

/// One key of a schema; a row of a static table.
struct KeySpec {
  std::string_view section;
  std::string_view name;
  KeyType type = KeyType::text;
  std::string_view default_text;  ///< as it would be written after `key=`; "auto" where allowed
  std::string_view doc;           ///< one line
  std::string_view example = {};
  bool allows_auto = false;
  std::string_view unlimited_word =
      {};                         ///< a word for "no limit", for bytes and seconds: "unlimited", "none"
  std::string_view choices = {};  ///< "cosine|linear|constant"
  double min =
      -std::numeric_limits<double>::infinity();  ///< for integer, number, bytes, seconds and list items
  double max = std::numeric_limits<double>::infinity();
  bool accepts_scalar = false;  ///< for text_list: a file may hold a text, which is a list of one
  bool is_path = false;         ///< for text and text_list: it names files or folders
};

struct PresetValue {
  std::string_view key;  ///< "model.layers"
  std::string_view text;
};
struct ConfigPreset {
  std::string_view name;
  std::string_view doc;
  std::span<const PresetValue> values;
};
/// A STRATA_* variable whose name does not follow STRATA_<SECTION>_<KEY>.
struct EnvName {
  std::string_view name;
  std::string_view key;  ///< the key it sets; empty where the program reads it itself (STRATA_CONFIG)
};

/// The keys a program knows. Points to static tables, which outlive every ConfigTree made from it.
struct ConfigSchema {
  std::span<const KeySpec> keys;
  std::span<const ConfigPreset> presets = {};
  std::string_view preset_key = {};  ///< the key that names the preset: "model.preset"
  std::span<const EnvName> env_names = {};
};

/// Values that a program found somewhere of its own, such as the sizes in a model's folder.
struct ConfigLayer {
  std::string origin;
  std::vector<std::pair<std::string, std::string>> values;  ///< key, text
};

/// Where values come from, lowest precedence first: default < preset < found < file < environment <
/// arguments.
struct ConfigSources {
  std::string file = {};  ///< ".json" is read as JSON, everything else as TOML; empty: none
  std::optional<std::string> file_text = {};  ///< instead of reading `file`
  std::vector<std::string> environment =
      {};  ///< "NAME=value"; names that do not begin with STRATA_ are skipped
  std::vector<std::string> arguments = {};   ///< "memory.device=32MiB"
  std::string preset = {};                   ///< as given by --preset; ranks with the arguments
  std::vector<ConfigLayer> discovered = {};  ///< the later over the earlier
};

/// The value of one key, and where it came from.
struct ConfigEntry {
  const KeySpec* spec = nullptr;
  ConfigValue value = {};   ///< of the type's alternative; of no meaning while `automatic && !resolved`
  std::string raw = {};     ///< as written
  std::string origin = {};  ///< "default", "preset austen-5m", "file run.toml:12", "environment
                            ///< STRATA_IO_BLOCK", "argument memory.device=32MiB"
  bool automatic = false;   ///< "auto" was written
  bool resolved = false;    ///< and a value was found for it
  std::string why = {};     ///< the reason for that value
};

/// Every key of a schema with its value. Values may be read from any thread once nothing calls resolve().
/// A key the schema lacks, or a getter of another type than the key's, is a bug and asserts.
class ConfigTree {
 public:
  /// Reads all layers. Every problem of every layer is collected and reported in one Status, a line each, in
  /// front of which stands its origin. Errors: `invalid`; `not_found` or `io_error` where the file is the
  /// only problem.
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

  /// Whether the key is `auto` and has no value yet; getters assert until it has one.
  bool is_auto(std::string_view key) const;
  /// Gives an `auto` its value and the reason that is printed beside it. Asserts where the key is not `auto`:
  /// what a user has set is never replaced.
  void resolve(std::string_view key, ConfigValue value, std::string why);

  /// Replaces every path there is (KeySpec::is_path, not empty, with a value) by what `map` makes of it.
  void map_paths(const std::function<std::string(const ConfigEntry& entry, const std::string& path)>& map);

  const ConfigEntry& entry(std::string_view key) const;
  std::span<const ConfigEntry> entries() const noexcept { return entries_; }  ///< in the schema's order

  /// config.resolved.toml: every key, `auto` resolved where it is known; with the origin in a trailing
  /// comment. Read again it gives the same values.
  std::string to_toml(bool with_origins) const;
  /// The same tree in JSON; with origins each value is {"value", "origin", "auto", "why"}, for reading by
  /// programs.
  std::string to_json(bool with_origins) const;

 private:
  template <class T>
  const T& get(std::string_view key) const;

  std::vector<ConfigEntry> entries_;
};

/// "invalid" with one line a problem, or ok where there is none.
Status config_problems(const std::vector<std::string>& problems);

}  // namespace strata
