#include <strata/runtime/config/match_names.h>

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

// Returns the few names with the smallest edit distance to the pattern.
std::vector<std::string_view> nearest_names(std::span<const std::string> all, const std::string& pattern) {
  constexpr std::size_t kShown = 3;
  std::vector<std::pair<int, std::string_view>> names;
  for (const std::string& name : all)
    names.emplace_back(edit_distance(std::string_view(pattern).substr(0, 100), name), name);
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> shown;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) shown.push_back(names[i].second);
  return shown;
}

}  // namespace

Result<std::vector<std::int32_t>> match_names(std::span<const std::string> names,
                                              std::span<const std::string> patterns, std::string_view key) {
  std::vector<std::int32_t> first(names.size(), -1);
  std::string problems;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    bool any = false;
    for (std::size_t n = 0; n < names.size(); ++n) {
      if (fnmatch(patterns[i].c_str(), names[n].c_str(), 0) != 0) continue;
      any = true;
      if (first[n] < 0) first[n] = static_cast<std::int32_t>(i);
    }
    if (!any)
      problems += str(problems.empty() ? "" : "\n", key, ": '", patterns[i], "' matches none of ",
                      names.size(), " parameters; the nearest are ",
                      fmt::format("{}", fmt::join(nearest_names(names, patterns[i]), ", ")));
  }
  if (!problems.empty()) return Status::error(Code::invalid, problems);
  return first;
}

}  // namespace strata
