#include <strata/runtime/config/json.h>

#include <cstddef>
#include <iterator>

#include <fmt/format.h>

#include <strata/runtime/utf8.h>

namespace strata {

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const CodePoint point = code_point_at(text, 0);
    const char c = text.front();
    if (point.value == kNoCodePoint)
      out += "\xEF\xBF\xBD";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    else
      out.append(text.substr(0, point.length));
    text.remove_prefix(point.length);
  }
  out += '"';
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace strata
