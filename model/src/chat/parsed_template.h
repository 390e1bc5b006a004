#pragma once

#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/model/chat.h>

#include "jinja/ast.h"

namespace strata {

struct ChatTemplate::Parsed {
  std::string name, jinja;
  std::shared_ptr<const detail::jinja::Body> body;
  SpecialWords words;
  nlohmann::json arguments = nlohmann::json::object();
  std::tm day{};
  Digest digest{};
  std::vector<std::string> markers;  // of a built-in template
};

namespace detail {

/// What the template writes, each byte with its author. Of n messages these are the number of the message for
/// its content, n more than it for what else it has, and 2 n for the tools. Errors: those of evaluating it;
/// `invalid` for tools or a message's `more` that is not JSON.
Result<jinja::Text> written(const ChatTemplate& chat, std::span<const ChatMessage> messages,
                            bool for_generation, const std::string& tools = {});

}  // namespace detail
}  // namespace strata
