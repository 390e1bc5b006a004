#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace strata {

/// The type of a key's value, and the alternative of ConfigValue that holds it.
enum class KeyType : std::uint8_t {
  boolean,      ///< bool
  integer,      ///< std::int64_t
  number,       ///< double, finite
  text,         ///< std::string
  bytes,        ///< std::uint64_t: "32MiB" or a count; kUnlimitedBytes for the key's unlimited_word
  seconds,      ///< double: "90s" or a number; +infinity for the key's unlimited_word
  steps,        ///< StepRange: false, true, "10" or "10-12"
  choice,       ///< std::string, one of the key's choices
  text_list,    ///< std::vector<std::string>
  number_list,  ///< std::vector<double>
};

inline constexpr std::uint64_t kUnlimitedBytes = std::numeric_limits<std::uint64_t>::max();

/// The steps from `first` to `last`, both inclusive; empty if last < first.
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

/// One key of a schema, as a row of a static table.
struct KeySpec {
  std::string_view section;
  std::string_view name;
  KeyType type = KeyType::text;
  std::string_view default_text;  ///< as the user would write it after `key=`; may be "auto" if allowed
  std::string_view doc;           ///< one line
  std::string_view example = {};
  bool allows_auto = false;
  std::string_view unlimited_word =
      {};                         ///< the word for "no limit" of bytes and seconds keys: "unlimited", "none"
  std::string_view choices = {};  ///< "cosine|linear|constant"; for text: values that a shell suggests
  double min =
      -std::numeric_limits<double>::infinity();  ///< for integer, number, bytes, seconds and list items
  double max = std::numeric_limits<double>::infinity();
  bool accepts_scalar = false;  ///< for text_list: a config file may hold a single string instead of a list
  bool is_path = false;         ///< for text and text_list: the value is a path, or a list of paths
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
  std::string_view key;  ///< the key it sets; empty if the program reads the variable itself (STRATA_CONFIG)
};

/// The former name of a key ("offload.order") or value ("train.recompute=block"), which is refused with the
/// present one.
struct RenamedKey {
  std::string_view old_name, new_name;
};

/// A name that other programs have for a key: a refusal of the word, in whichever section or as an option,
/// names the key. `key` may also be an option or a command.
struct OtherWord {
  std::string_view word, key;
  std::string_view note = {};  ///< says which value to write there, if the name alone would mislead
};

/// All keys that a program accepts. Points to static tables, which must outlive every ConfigTree built from
/// it.
struct ConfigSchema {
  std::span<const KeySpec> keys;
  std::span<const ConfigPreset> presets = {};
  std::string_view preset_key = {};  ///< the key that names the preset: "model.preset"
  std::span<const EnvName> env_names = {};
  std::span<const RenamedKey> renamed = {};
  std::span<const OtherWord> other_words = {};
};

/// The entry for a word, in any case, with dashes or underscores, and after any section; null if it is none.
const OtherWord* find_other_word(const ConfigSchema& schema, std::string_view word);

}  // namespace strata
