#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata {

/// Edit distance between two words, counting inserts, deletes, replacements and swaps of neighbors (optimal
/// string alignment).
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, or empty if none is similar enough to be a likely typo.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

/// "; did you mean 'x'?" or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace strata
