#include <fnmatch.h>

#include <algorithm>

#include <fmt/ranges.h>

#include <strata/graph/passes.h>
#include <strata/runtime/str.h>
#include <strata/runtime/config/suggest.h>

namespace strata {
namespace {

constexpr std::string_view kKey = "train.freeze";

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// Returns the few names with the smallest edit distance to the pattern.
std::vector<std::string_view> nearest_names(const Program& program, const std::string& pattern) {
  constexpr std::size_t kShown = 3;
  std::vector<std::pair<int, std::string_view>> names;
  for (const ParamInfo& param : program.params)
    names.emplace_back(edit_distance(std::string_view(pattern).substr(0, 100), param.name), param.name);
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> shown;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) shown.push_back(names[i].second);
  return shown;
}

}  // namespace

Result<std::vector<std::int32_t>> match_parameters(const Program& program,
                                                   std::span<const std::string> patterns,
                                                   std::string_view key) {
  std::vector<std::int32_t> first(program.params.size(), -1);
  std::string problems;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    bool any = false;
    for (std::size_t p = 0; p < program.params.size(); ++p) {
      if (!matches(patterns[i], program.params[p].name)) continue;
      any = true;
      if (first[p] < 0) first[p] = static_cast<std::int32_t>(i);
    }
    if (!any)
      problems += str(problems.empty() ? "" : "\n", key, ": '", patterns[i], "' matches none of ",
                      program.params.size(), " parameters; the nearest are ",
                      fmt::format("{}", fmt::join(nearest_names(program, patterns[i]), ", ")));
  }
  if (!problems.empty()) return Status::error(Code::invalid, problems);
  return first;
}

Result<Program> freeze_parameters(Program program, std::span<const std::string> patterns) {
  STRATA_TRY_ASSIGN(const std::vector<std::int32_t> match, match_parameters(program, patterns, kKey));
  bool any_left = false;
  for (std::size_t p = 0; p < program.params.size(); ++p) {
    if (match[p] >= 0) program.params[p].trainable = false;
    any_left = any_left || program.params[p].trainable;
  }
  if (!any_left)
    return Status::error(Code::invalid, str(kKey, ": all ", program.params.size(),
                                            " parameters are frozen, and nothing is left to train"));
  return program;
}

}  // namespace strata
