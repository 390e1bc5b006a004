#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include <strata/runtime/status.h>

namespace strata {

/// Why a request is refused or failed, as OpenAI's API says it.
struct ApiError {
  int http_status = 400;
  std::string message;
  std::string param;  ///< the field of the request that it is about; empty: none
  std::string code;   ///< a word for programs; empty: none
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

/// "invalid_request_error", "rate_limit_error" or "server_error".
std::string_view error_type(int http_status) noexcept;
/// {"error": {"message", "type", "param", "code"}}
std::string to_json(const ApiError& error);
/// That no more answers are begun: 503.
ApiError stopping_error();
/// 400 for what a request asks and cannot have, 404 for what does not exist, stopping_error() for what was
/// cancelled, and 500 for everything else.
ApiError api_error(const Status& status);

}  // namespace strata
