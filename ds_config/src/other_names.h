#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata::detail {

/// Another name of a key, or of a section.
struct OtherName {
  std::string_view name, key;
};
std::span<const OtherName> other_names() noexcept;

/// The name in the table for a key as it was written.
std::string table_name(std::string_view written);
/// Whether `key` is in this section, at any depth.
inline bool is_below(std::string_view key, std::string_view section) {
  return key.size() > section.size() && key.starts_with(section) && key[section.size()] == '.';
}

}  // namespace strata::detail
