#include "svg.h"

#include <strata/runtime/terminal_text.h>

#include "assets.h"

namespace strata::detail {

// XML knows no control characters either.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : terminal_text(text)) switch (c) {
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
        out += c;
    }
  return out;
}

std::string picture_style() {
  return "<style>" + std::string(assets::kColours) + std::string(assets::kPictures) + "</style>\n";
}

}  // namespace strata::detail
