#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/text/chat.h>
#include <strata/runtime/status.h>

#include "jinja/value.h"

namespace strata::detail {

/// Who wrote what of a conversation of `n` messages, as numbers of jinja::Author.
struct ChatAuthors {
  std::size_t n = 0;

  jinja::Author content(std::size_t i) const noexcept { return static_cast<jinja::Author>(i); }
  /// The author of the message's other fields: calls and names.
  jinja::Author more(std::size_t i) const noexcept { return static_cast<jinja::Author>(n + i); }
  jinja::Author tools() const noexcept { return static_cast<jinja::Author>(2 * n); }
  jinja::Author reasoning(std::size_t i) const noexcept { return static_cast<jinja::Author>(2 * n + 1 + i); }
  std::size_t count() const noexcept { return 3 * n + 1; }
};

/// A conversation as a template reads it: parsed once for all that is written of it.
struct ChatValues {
  ChatAuthors authors;
  jinja::List messages;
  std::vector<bool> has_calls, has_reasoning;  ///< per message
  jinja::Value tools;

  /// Errors: `invalid` for tools or a message's `more` that is not JSON.
  static Result<ChatValues> of(std::span<const ChatMessage> messages, const std::string& tools);
};

/// A JSON value whose texts have this author. It is at most 64 deep, as the parser has it.
jinja::Value value_of(const nlohmann::json& from, jinja::Author author);

/// Renders the first `n` messages, each byte with its author. Errors: those of evaluating the template.
Result<jinja::Text> written(const ChatTemplate& chat, const ChatValues& values, std::size_t n,
                            bool for_generation);

}  // namespace strata::detail
