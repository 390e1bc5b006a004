#include <strata/serve/api_error.h>

#include <nlohmann/json.hpp>

#include "api/json_text.h"

namespace strata {

std::string_view error_type(int http_status) noexcept {
  if (http_status == 429) return "rate_limit_error";
  return http_status >= 500 ? "server_error" : "invalid_request_error";
}

std::string to_json(const ApiError& error) {
  using detail::OrderedJson;
  const auto or_null = [](const std::string& text) {
    return text.empty() ? OrderedJson() : OrderedJson(text);
  };
  return detail::json_text({{"error",
                             {{"message", error.message},
                              {"type", error_type(error.http_status)},
                              {"param", or_null(error.param)},
                              {"code", or_null(error.code)}}}});
}

ApiError stopping_error() { return {503, "the server is stopping", {}, "server_stopping"}; }

ApiError api_error(const Status& status) {
  ApiError error{.http_status = 500, .message = std::string(status.message()), .param = {}, .code = {}};
  switch (status.code()) {
    case Code::invalid:
    case Code::unsupported:
      error.http_status = 400;
      break;
    case Code::not_found:
      error.http_status = 404;
      break;
    case Code::cancelled:
      return stopping_error();
    default:
      break;
  }
  return error;
}

}  // namespace strata
