#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata::detail::jinja {

enum class TokenKind : std::uint8_t {
  data,         ///< text outside of tags
  begin_print,  ///< {{
  end_print,    ///< }}
  begin_block,  ///< {%
  end_block,    ///< %}
  name,
  text,  ///< a string literal, without its quotes and escapes
  integer,
  real,
  sign,  ///< an operator or a bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 1;

  bool is(TokenKind wanted, std::string_view spelled) const noexcept {
    return kind == wanted && text == spelled;
  }
};

/// Splits a template as Jinja 3 does with trim_blocks and lstrip_blocks, which are the settings of
/// transformers. The last token is `end`. Errors: `invalid`, with the line.
Result<std::vector<Token>> tokens_of(std::string_view source);

}  // namespace strata::detail::jinja
