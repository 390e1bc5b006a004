#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace strata::detail {

using OrderedJson = nlohmann::ordered_json;

/// JSON on one line. Bytes that are not UTF-8, such as those of a file's name, become U+FFFD.
inline std::string json_text(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace strata::detail
