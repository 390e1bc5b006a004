#include "svg.h"

#include <strata/runtime/config/json.h>

#include "assets.h"

namespace strata::detail {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML knows no other control characters.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  return is_utf8(out) ? out : std::string("(not UTF-8)");
}

std::string picture_style() {
  return "<style>" + std::string(assets::kColours) + std::string(assets::kPictures) + "</style>\n";
}

}  // namespace strata::detail
