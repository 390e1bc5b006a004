#include "jinja/text.h"

#include <algorithm>

#include <utf8proc.h>

#include "text/unicode_ranges.h"
#include <strata/runtime/utf8.h>

namespace strata::detail::jinja {
namespace {

/// Python's str.isspace() of one character: White_Space and four more control characters.
bool is_python_space(char32_t point) { return is_space(point) || (point >= 0x1C && point <= 0x1F); }

bool is_stripped(std::string_view text, std::size_t at, std::size_t length, std::string_view of) {
  if (!of.empty()) {
    const std::string_view one = text.substr(at, length);
    for (std::size_t i = 0; i < of.size(); i += code_point_at(of, i).length)
      if (of.substr(i, code_point_at(of, i).length) == one) return true;
    return false;
  }
  const char32_t point = code_point_at(text, at).value;
  return point != kNoCodePoint && is_python_space(point);
}

template <class Change>
Text changed(const Text& text, Change change) {
  std::string out;
  const std::string& bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint point = code_point_at(bytes, at);
    if (point.value == kNoCodePoint)
      out += bytes[at];
    else
      append_utf8(out, change(point.value));
    at += point.length;
  }
  return Text(std::move(out), text.author());
}

char32_t to_upper(char32_t point) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point)));
}
char32_t to_lower(char32_t point) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
}

}  // namespace

Text::Text(std::string bytes, Author author) : bytes_(std::move(bytes)) {
  add_stretch(bytes_.size(), author);
}

void Text::add_stretch(std::size_t end, Author author) {
  const std::size_t begin = stretches_.empty() ? 0 : stretches_.back().end;
  if (end == begin) return;
  if (!stretches_.empty() && stretches_.back().author == author)
    stretches_.back().end = end;
  else
    stretches_.push_back({end, author});
}

Author Text::author() const noexcept {
  for (const Stretch& stretch : stretches_)
    if (stretch.author != kTemplate) return stretch.author;
  return kTemplate;
}

void Text::append(const Text& other) {
  const std::size_t before = bytes_.size();
  // `other` may be this text itself.
  const std::vector<Stretch> added = other.stretches_;
  bytes_ += std::string_view(other.bytes_);
  for (const Stretch& stretch : added) add_stretch(before + stretch.end, stretch.author);
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text out;
  if (begin >= end) return out;
  out.bytes_ = bytes_.substr(begin, end - begin);
  auto at = std::upper_bound(stretches_.begin(), stretches_.end(), begin,
                             [](std::size_t place, const Stretch& stretch) { return place < stretch.end; });
  for (; at != stretches_.end(); ++at) {
    out.add_stretch(std::min(at->end, end) - begin, at->author);
    if (at->end >= end) break;
  }
  return out;
}

Text stripped(const Text& text, bool left, bool right, std::string_view of) {
  const std::vector<std::size_t> at = character_offsets(text.bytes());
  std::size_t begin = 0, end = at.size() - 1;  // characters
  const auto strips = [&](std::size_t i) { return is_stripped(text.bytes(), at[i], at[i + 1] - at[i], of); };
  while (left && begin < end && strips(begin)) ++begin;
  while (right && begin < end && strips(end - 1)) --end;
  return text.slice(at[begin], at[end]);
}

Text replaced(const Text& text, std::string_view from, const Text& to, std::int64_t limit) {
  Text out;
  const std::string& bytes = text.bytes();
  if (from.empty()) {  // before each character and at the end, as Python does
    const std::vector<std::size_t> at = character_offsets(bytes);
    for (std::size_t i = 0; i < at.size(); ++i) {
      if (limit < 0 || static_cast<std::int64_t>(i) < limit) out.append(to);
      if (i + 1 < at.size()) out.append(text.slice(at[i], at[i + 1]));
    }
    return out;
  }
  std::size_t done = 0;
  for (std::size_t found = bytes.find(from); found != std::string::npos && limit != 0;
       found = bytes.find(from, done)) {
    out.append(text.slice(done, found));
    out.append(to);
    done = found + from.size();
    if (limit > 0) --limit;
  }
  out.append(text.slice(done, bytes.size()));
  return out;
}

Text upper(const Text& text) { return changed(text, to_upper); }
Text lower(const Text& text) { return changed(text, to_lower); }

Text capitalized(const Text& text, bool each_word) {
  bool inside = false;
  return changed(text, [&](char32_t point) {
    const bool first = !inside;
    inside = !each_word || is_letter(point);
    return first ? to_upper(point) : to_lower(point);
  });
}

std::vector<std::size_t> character_offsets(std::string_view text) {
  std::vector<std::size_t> out;
  out.reserve(text.size() + 1);
  for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).length) out.push_back(at);
  out.push_back(text.size());
  return out;
}

}  // namespace strata::detail::jinja
