#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::detail::jinja {

/// Who wrote a byte of a text: the template, who asked for it, or the message with this number, counted from
/// 0.
using Author = std::int32_t;
inline constexpr Author kTemplate = -1, kArgument = -2;

/// Bytes, each with its author. What a template does to a string (slices, joins, trims) keeps the authors, so
/// that the finished text says which of its bytes a message wrote and which the template did.
class Text {
 public:
  struct Stretch {
    std::size_t end;  ///< where its bytes end; it begins where the one before ends
    Author author;
  };

  Text() = default;
  explicit Text(std::string bytes, Author author = kTemplate);

  const std::string& bytes() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return bytes_.size(); }
  bool empty() const noexcept { return bytes_.empty(); }
  /// In order, each with other authors than its neighbors'; they cover the bytes.
  const std::vector<Stretch>& stretches() const noexcept { return stretches_; }
  /// The author of the first byte that a message wrote; kTemplate if there is none.
  Author author() const noexcept;

  void append(const Text& other);
  Text slice(std::size_t begin, std::size_t end) const;

 private:
  void add_stretch(std::size_t end, Author author);

  std::string bytes_;
  std::vector<Stretch> stretches_;
};

/// Without the white space at either end, or without the characters in `of` if it is not empty: Python's
/// strip(), lstrip() and rstrip().
Text stripped(const Text& text, bool left, bool right, std::string_view of = {});
/// The text with each `from` replaced by `to`; only the first `limit` ones unless it is negative.
Text replaced(const Text& text, std::string_view from, const Text& to, std::int64_t limit = -1);
/// Letter by letter; the result has the author of the first byte that a message wrote.
Text upper(const Text& text);
Text lower(const Text& text);
/// Python's capitalize(), and with `each_word` its title().
Text capitalized(const Text& text, bool each_word);

/// The byte offsets of the characters and, at the end, the size. A byte that is not UTF-8 is a character.
std::vector<std::size_t> character_offsets(std::string_view text);

}  // namespace strata::detail::jinja
