#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/tokenizer_spec.h>

#include "text/unicode_ranges.h"
#include <strata/runtime/utf8.h>

namespace strata::detail {

/// Finds added tokens in a text: the leftmost match and, among those that begin there, the longest.
class AddedTokenMatcher {
 public:
  struct Match {
    std::size_t begin;
    std::size_t end;
    std::uint32_t index;  // as passed to the constructor
  };
  struct Entry {
    std::string content;
    std::uint32_t index;
  };

  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<Entry> entries);
  bool empty() const noexcept { return entries_.empty(); }
  /// The first match at or after `from`; begin == size() if there is none.
  Match next(std::string_view text, std::size_t from) const noexcept;

 private:
  Match longest_at(std::string_view text, std::size_t at) const noexcept;

  std::vector<Entry> entries_;                 // sorted by content
  std::array<std::uint32_t, 257> by_first_{};  // entries_[by_first_[b]..by_first_[b + 1]) begin with byte b
};

std::size_t without_trailing_spaces(std::string_view text) noexcept;
std::size_t leading_spaces(std::string_view text) noexcept;
bool ends_with_word(std::string_view text) noexcept;
bool starts_with_word(std::string_view text) noexcept;

/// Calls `on_text` for the text between added tokens, and `on_token` with each token and the range of bytes
/// that it stands for, in order. `wanted` selects them by the token and where it begins and ends; one that is
/// not selected still hides shorter ones inside it, as in Hugging Face's search.
void for_each_part(std::string_view text, const AddedTokenMatcher& matcher,
                   const std::vector<AddedToken>& added, const auto& wanted, const auto& on_text,
                   const auto& on_token) {
  std::size_t done = 0;
  std::size_t spaces_end = 0;  // end of the last run of spaces: a token of spaces may begin anywhere in it
  AddedTokenMatcher::Match match = matcher.next(text, 0);
  for (; match.begin < text.size(); match = matcher.next(text, match.end)) {
    const AddedToken& token = added[match.index];
    if (!wanted(token, match.begin, match.end)) continue;
    std::size_t begin = match.begin;
    std::size_t end = match.end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end))))
      continue;
    if (token.lstrip && done < begin) begin = done + without_trailing_spaces(text.substr(done, begin - done));
    if (token.rstrip)
      end = spaces_end = end < spaces_end ? spaces_end : end + leading_spaces(text.substr(end));
    if (done < begin) on_text(text.substr(done, begin - done));
    on_token(token, begin, end);
    done = end;
  }
  if (done != text.size()) on_text(text.substr(done));
}

}  // namespace strata::detail
