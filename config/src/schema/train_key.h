#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/model/decoder_config.h>
#include <strata/runtime/config/config.h>
#include <strata/runtime/str.h>
#include <strata/config/train_config.h>

namespace strata {

using FillField = void (*)(const ConfigEntry& entry, TrainConfig& config);

/// The field of TrainConfig that a key's value is copied to, and its text in the identity of a run.
struct KeyField {
  FillField fill;
  std::string (*text)(const TrainConfig& config);
};

/// How a key takes part in the identity of a run (run_identity()). Whatever may change a bit of the results
/// has an entry there, and a checkpoint is only resumed by a run with equal entries. A row begins with one of
/// the four constants below, because none of them is a default: a row that states none does not compile.
struct KeyIdentity {
  enum class Kind : std::uint8_t { no_bits, in_other_entries, may_change, entry };
  using Condition = bool (*)(const TrainConfig& config);
  using Text = std::string (*)(const TrainConfig& config);

  Kind kind;
  Condition condition = nullptr;        ///< the runs that have the entry; null: all
  Text text = nullptr;                  ///< the text of the entry; null: that of the field
  std::string_view former = "nothing";  ///< what checkpoints without the entry were made with

  constexpr explicit KeyIdentity(Kind of_kind) noexcept : kind(of_kind) {}
  /// Only runs that read the key have the entry.
  constexpr KeyIdentity when(Condition reads) const noexcept {
    KeyIdentity changed = *this;
    changed.condition = reads;
    return changed;
  }
  constexpr KeyIdentity as(Text shown) const noexcept {
    KeyIdentity changed = *this;
    changed.text = shown;
    return changed;
  }
  constexpr KeyIdentity formerly(std::string_view value) const noexcept {
    KeyIdentity changed = *this;
    changed.former = value;
    return changed;
  }
};
/// No value changes a bit of the results.
inline constexpr KeyIdentity kNoBits{KeyIdentity::Kind::no_bits};
/// What follows from the value is in other entries or in the checkpoint: the data, sizes, steps, first
/// values.
inline constexpr KeyIdentity kInOtherEntries{KeyIdentity::Kind::in_other_entries};
/// The value may change bits, and a resumed run may have another one: it belongs to the machine or the ranks.
inline constexpr KeyIdentity kMayChange{KeyIdentity::Kind::may_change};
/// The value is an entry.
inline constexpr KeyIdentity kIdentity{KeyIdentity::Kind::entry};

/// What the program does with a key apart from copying its value.
struct KeyFacts {
  KeyIdentity identity;
  bool planned = false;  ///< a plan decides an `auto` for its budgets, and again for others
  bool replans = false;  ///< a run with another value than before decides planned keys again
  /// The value that the folder model.from determines; null: none.
  std::string (*from_folder)(const DecoderConfig& decoder) = nullptr;
  std::string_view on_device = {};     ///< the value with which nothing is offloaded
  std::string (*choices)() = nullptr;  ///< KeySpec::choices, where a table elsewhere has the names
  std::string (*readers)() = nullptr;  ///< who reads the key, for the end of KeySpec::doc
};

/// One configuration key: its schema, its field and all else that is true of it alone.
struct TrainKey {
  KeySpec spec;
  KeyField field;
  KeyFacts facts;
  std::string name() const { return str(spec.section, ".", spec.name); }
};

/// For keys that are read from the ConfigTree by name, where they are used.
inline constexpr KeyField kNoField = {[](const ConfigEntry&, TrainConfig&) {}, nullptr};

namespace detail {

inline bool is_open_auto(const ConfigEntry& entry) { return entry.automatic && !entry.resolved; }

/// A field whose type is the one that the ConfigTree holds. A string may be "auto".
template <class T>
void copy_value(const ConfigEntry& entry, T& field) {
  field = std::get<T>(entry.value);
}
inline void copy_value(const ConfigEntry& entry, std::string& field) {
  field = is_open_auto(entry) ? std::string("auto") : std::get<std::string>(entry.value);
}
/// The ranges in the schema keep the values of `int` fields below 2^31.
inline void copy_value(const ConfigEntry& entry, int& field) {
  field = static_cast<int>(std::get<std::int64_t>(entry.value));
}
inline void copy_value(const ConfigEntry& entry, std::uint64_t& field) {
  field = entry.spec->type == KeyType::bytes
              ? std::get<std::uint64_t>(entry.value)
              : static_cast<std::uint64_t>(std::get<std::int64_t>(entry.value));
}
/// An optional field is empty if the value is auto.
template <class T>
void copy_value(const ConfigEntry& entry, std::optional<T>& field) {
  if (!is_open_auto(entry)) copy_value(entry, field.emplace());
}

inline std::string value_text(const StepRange& steps) { return str(steps.first, "-", steps.last); }
template <class T>
std::string value_text(const T& value) {
  return fmt::format("{}", value);
}
template <class T>
std::string value_text(const std::vector<T>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}
template <class T>
std::string value_text(const std::optional<T>& value) {
  return value ? value_text(*value) : "auto";
}

template <auto Section, auto Field>
std::string field_text(const TrainConfig& config) {
  return value_text(config.*Section.*Field);
}

}  // namespace detail

/// Copies a value to a field, for example field<&TrainConfig::io, &TrainConfig::IoSection::engine>.
template <auto Section, auto Field>
inline constexpr KeyField field = {
    [](const ConfigEntry& entry, TrainConfig& config) { detail::copy_value(entry, config.*Section.*Field); },
    detail::field_text<Section, Field>};

/// The same for a field that keeps its first value until an `auto` is resolved.
template <auto Section, auto Field>
inline constexpr KeyField field_if_known = {[](const ConfigEntry& entry, TrainConfig& config) {
                                              if (!detail::is_open_auto(entry))
                                                detail::copy_value(entry, config.*Section.*Field);
                                            },
                                            detail::field_text<Section, Field>};

/// The names of an enumeration's table, or names themselves, for KeyFacts::choices.
template <class Values>
std::string joined_names(const Values& values) {
  std::string names;
  for (const auto& value : values) {
    if (!names.empty()) names += '|';
    if constexpr (std::is_enum_v<std::decay_t<decltype(value)>>)
      names += to_string(value);
    else
      names += value;
  }
  return names;
}

/// KeyFacts::from_folder of a size.
template <auto Size>
std::string size(const DecoderConfig& decoder) {
  return str(decoder.*Size);
}

}  // namespace strata
