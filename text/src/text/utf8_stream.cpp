#include <strata/text/utf8_stream.h>

#include <strata/runtime/utf8.h>

namespace strata {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

// Whether further bytes could complete `tail` to a character. If any continuation is well-formed, then the
// lowest or the highest one is.
bool may_become_one(std::string_view tail) {
  for (const char filler : {'\x80', '\xBF'}) {
    std::string whole(tail);
    while (whole.size() < 4) {
      whole += filler;
      const CodePoint point = code_point_at(whole, 0);
      if (point.value != kNoCodePoint && point.length > tail.size()) return true;
    }
  }
  return false;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  waiting_ += bytes;
  return take(false);
}

std::string Utf8Stream::finish() { return take(true); }

std::string Utf8Stream::take(bool at_end) {
  std::string text;
  std::size_t at = 0;
  while (at < waiting_.size()) {
    const CodePoint point = code_point_at(waiting_, at);
    const std::string_view rest = std::string_view(waiting_).substr(at);
    if (point.value == kNoCodePoint && !at_end && rest.size() < 4 && may_become_one(rest)) break;
    append_utf8(text, point.value == kNoCodePoint ? kReplacement : point.value);
    at += point.length;
  }
  waiting_.erase(0, at);
  return text;
}

}  // namespace strata
