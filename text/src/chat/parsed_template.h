#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <strata/text/chat.h>

#include "jinja/ast.h"

namespace strata {

struct ChatTemplate::Parsed {
  std::string name, jinja;
  std::shared_ptr<const detail::jinja::Body> body;
  SpecialWords words;
  nlohmann::json arguments = nlohmann::json::object();
  std::tm day{};
  Digest digest{};
  std::vector<std::string> markers;  // the special tokens of a built-in template
};

}  // namespace strata
