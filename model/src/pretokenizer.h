#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <strata/model/tokenizer_spec.h>

namespace strata::detail {

/// A run longer than this is cut: it bounds the memory of one merge, and no text meant to be read has one.
inline constexpr std::size_t kMaxPretokenBytes = std::size_t{16} << 20;

/// Cuts text into the pieces that no merge crosses, as the rule's regular expression does (regex_of). One
/// pass, no backtracking: the alternatives begin with different classes of characters, so the first character
/// and the run behind it decide. A byte that is not UTF-8 counts as one character of the "other" class.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::string_view text, SplitRule rule = SplitRule::gpt2) noexcept
      : text_(text), rule_(rule) {}
  /// The next piece; empty at the end. The pieces joined are the text.
  std::string_view next() noexcept;

 private:
  std::string_view text_;
  SplitRule rule_;
  std::size_t at_ = 0;
};

/// The expression as tokenizer.json files spell it; several spellings mean one rule.
std::string_view regex_of(SplitRule rule) noexcept;
std::optional<SplitRule> rule_of_regex(std::string_view regex) noexcept;

/// The largest n such that cutting the text before byte n changes no piece, whatever follows; 0 where there
/// is none.
std::size_t last_safe_cut(std::string_view text, SplitRule rule = SplitRule::gpt2) noexcept;

}  // namespace strata::detail
