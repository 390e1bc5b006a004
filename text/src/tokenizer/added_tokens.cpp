#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

namespace strata::detail {
namespace {

unsigned byte_of(const std::string& text, std::size_t at) noexcept {
  return static_cast<unsigned char>(text[at]);
}

/// The last character of a text that is not empty.
CodePoint last_code_point(std::string_view text) noexcept {
  for (std::size_t back = 1; back <= 4 && back <= text.size(); ++back) {
    const CodePoint point = code_point_at(text, text.size() - back);
    if (point.value != kNoCodePoint && point.length == back) return point;
  }
  return {kNoCodePoint, 1};
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.content < b.content; });
  for (const Entry& entry : entries_) ++by_first_[byte_of(entry.content, 0) + 1];
  for (std::size_t b = 0; b < 256; ++b) by_first_[b + 1] += by_first_[b];
}

AddedTokenMatcher::Match AddedTokenMatcher::next(std::string_view text, std::size_t from) const noexcept {
  if (!entries_.empty())
    for (std::size_t at = from; at < text.size(); ++at) {
      const auto b = static_cast<unsigned char>(text[at]);
      if (by_first_[b] == by_first_[b + 1]) continue;
      if (const Match match = longest_at(text, at); match.end > at) return match;
    }
  return {text.size(), text.size(), 0};
}

/// Narrows the range of sorted entries byte by byte; if an entry ends here, it is the first of the range. A
/// trie was ruled out, since a malicious file could make it a gigabyte large.
AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, std::size_t at) const noexcept {
  const auto first = static_cast<unsigned char>(text[at]);
  auto low = entries_.begin() + by_first_[first];
  auto high = entries_.begin() + by_first_[first + 1U];
  Match best{at, at, 0};
  for (std::size_t depth = 1; low != high; ++depth) {
    for (; low != high && low->content.size() == depth; ++low)
      if (best.end < at + depth) best = {at, at + depth, low->index};
    if (at + depth >= text.size()) break;
    const unsigned wanted = static_cast<unsigned char>(text[at + depth]);
    low = std::partition_point(low, high, [&](const Entry& e) { return byte_of(e.content, depth) < wanted; });
    high =
        std::partition_point(low, high, [&](const Entry& e) { return byte_of(e.content, depth) == wanted; });
  }
  return best;
}

std::size_t without_trailing_spaces(std::string_view text) noexcept {
  while (!text.empty()) {
    const CodePoint point = last_code_point(text);
    if (point.value == kNoCodePoint || !is_space(point.value)) break;
    text.remove_suffix(point.length);
  }
  return text.size();
}
std::size_t leading_spaces(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint point = code_point_at(text, at);
    if (point.value == kNoCodePoint || !is_space(point.value)) break;
    at += point.length;
  }
  return at;
}
bool ends_with_word(std::string_view text) noexcept {
  return !text.empty() && is_word(last_code_point(text).value);
}
bool starts_with_word(std::string_view text) noexcept {
  return !text.empty() && is_word(code_point_at(text, 0).value);
}

}  // namespace strata::detail
