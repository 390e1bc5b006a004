#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <strata/text/tokenizer_spec.h>

namespace strata::detail {

/// A longer run is split. This bounds the memory of one merge; readable text has no such run.
inline constexpr std::size_t kMaxPretokenBytes = std::size_t{16} << 20;

/// Splits text into pre-tokens, which no merge crosses, as the rule's regular expression does (regex_of). One
/// pass without backtracking: the alternatives begin with different character classes, so the first character
/// and the run after it decide. A byte that is not UTF-8 counts as one character of the "other" class.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::string_view text, SplitRule rule = SplitRule::gpt2) noexcept
      : text_(text), rule_(rule) {}
  /// The next pre-token; empty at the end. Their concatenation is the text.
  std::string_view next() noexcept;

 private:
  std::size_t digits_end() noexcept;

  std::string_view text_;
  SplitRule rule_;
  std::size_t at_ = 0;
  std::size_t part_end_ = 0;  // where the next digit is, if the rule is SplitRule::digits
};

/// The regular expression in tokenizer.json files; several spellings mean the same rule.
std::string_view regex_of(SplitRule rule) noexcept;
std::optional<SplitRule> rule_of_regex(std::string_view regex) noexcept;

/// The largest n such that splitting the text before byte n changes no pre-token, whatever follows the text;
/// 0 if there is none.
std::size_t last_safe_cut(std::string_view text, SplitRule rule = SplitRule::gpt2) noexcept;

}  // namespace strata::detail
