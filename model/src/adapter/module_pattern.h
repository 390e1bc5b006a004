#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata::detail {

/// A regular expression over names of modules, in the syntax of Python's re as far as people write it for
/// PEFT: characters, ".", classes, \d \w \s \b and their opposites, groups, "|", repetitions, ^ and $, and
/// what must or must not follow, (?=...) and (?!...). A match takes time and memory that are bounded by the
/// product of the lengths of pattern and name (Thompson 1968, "Regular expression search algorithm").
class ModulePattern {
 public:
  /// Errors: `invalid` for a pattern that Python refuses, and for one that has more than kMostStates;
  /// `unsupported` for the rest of Python's syntax (references to groups, lookbehind, flags), by its name.
  static Result<ModulePattern> parse(std::string_view pattern);

  /// As re.fullmatch().
  bool matches(std::string_view name) const;

  static constexpr std::size_t kMostStates = 4000;
  static constexpr int kDeepest = 50;  ///< groups in groups

  struct State {
    enum class Kind : std::uint8_t {
      byte_of,
      split,
      begin,
      end,
      boundary,
      no_boundary,
      ahead,
      not_ahead,
      match
    };
    Kind kind = Kind::match;
    std::int32_t next = -1, other = -1;  ///< states; of a lookahead, `other` is where its pattern begins
    std::vector<bool> bytes = {};        ///< byte_of: which of 256
  };

 private:
  bool reaches_match(std::int32_t first, std::string_view name, std::size_t at, bool whole) const;
  bool holds(const State& state, std::string_view name, std::size_t at) const;
  std::vector<State> states_;
  std::int32_t first_ = 0;
};

/// Whether the text has a character that no name of a module has, but regular expressions do.
bool is_module_pattern(std::string_view text) noexcept;

}  // namespace strata::detail
