#include "text/nfc.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include <utf8proc.h>

#include "text/unicode_ranges.h"
#include <strata/runtime/utf8.h>

namespace strata::detail {
namespace {

struct Free {
  void operator()(utf8proc_uint8_t* bytes) const noexcept { std::free(bytes); }
};

// utf8proc sorts a run of combining marks in quadratic time. Readable text has no run of more than thirty
// (Unicode annex 15, section 13); a run longer than this limit is normalized in parts.
constexpr std::size_t kMaxRunBytes = 512;

/// Appends the NFC of `text`, which is well-formed UTF-8.
void append_nfc(std::string& out, std::string_view text) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                          static_cast<utf8proc_ssize_t>(text.size()), &made,
                                          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, Free> owned(made);
  if (n < 0) throw std::bad_alloc();  // the only possible failure here
  out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(n));
}

/// Offset of the first character from `at` that NFC may change; size() if none. No character below U+0300
/// changes, and 0xCC is the first byte of U+0300.
std::size_t first_unsafe(std::string_view text, std::size_t at) noexcept {
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0xCC) {
      ++at;
      continue;
    }
    const CodePoint point = code_point_at(text, at);
    if (point.value != kNoCodePoint && may_change_in_nfc(point.value)) return at;
    at += point.length;
  }
  return at;
}
/// Offset of the character before `at`, which may be composed with the one at `at`; `at` if there is none.
std::size_t one_before(std::string_view text, std::size_t at) noexcept {
  std::size_t begin = at;
  while (begin > 0 && at - begin < 4) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) continue;
    const CodePoint point = code_point_at(text, begin);
    return point.value != kNoCodePoint && begin + point.length == at ? begin : at;
  }
  return at;
}

}  // namespace

std::optional<std::string> to_nfc(std::string_view text) {
  std::size_t unsafe = first_unsafe(text, 0);
  if (unsafe == text.size()) return std::nullopt;
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  while (unsafe < text.size()) {
    // Nothing is composed or reordered across the boundary before a character that never changes, so the text
    // between two such characters is normalized by itself.
    const std::size_t begin = std::max(done, one_before(text, unsafe));
    std::size_t end = unsafe;
    while (end < text.size() && end - begin < kMaxRunBytes) {
      const CodePoint point = code_point_at(text, end);
      if (point.value == kNoCodePoint || !may_change_in_nfc(point.value)) break;
      end += point.length;
    }
    out.append(text.substr(done, begin - done));
    append_nfc(out, text.substr(begin, end - begin));
    done = end;
    unsafe = first_unsafe(text, done);
  }
  out.append(text.substr(done));
  return out;
}

}  // namespace strata::detail
