#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include <strata/runtime/config/config.h>
#include <strata/config/train_config.h>

namespace strata {

using FillField = void (*)(const ConfigEntry& entry, TrainConfig& config);

/// One configuration key: its schema, and the field of TrainConfig that its value is copied to.
struct TrainKey {
  KeySpec spec;
  FillField fill;
};

/// For keys that are read from the ConfigTree by name, where they are used.
inline constexpr FillField kNoField = [](const ConfigEntry&, TrainConfig&) {};

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

}  // namespace detail

/// Copies a value to a field, for example field<&TrainConfig::io, &TrainConfig::IoSection::engine>.
template <auto Section, auto Field>
inline constexpr FillField field =
    [](const ConfigEntry& entry, TrainConfig& config) { detail::copy_value(entry, config.*Section.*Field); };

}  // namespace strata
