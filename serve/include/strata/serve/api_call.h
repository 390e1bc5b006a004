#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <strata/serve/api_error.h>

namespace strata {

/// The paths that take a POST with a body of JSON.
inline constexpr std::string_view kPostPaths[] = {"/v1/completions", "/v1/chat/completions"};

/// The state of a client that waits for an answer, as far as a transport knows it.
enum class ClientState : std::uint8_t {
  there,
  sends_no_more,  ///< it has closed its half of the connection, or has left: only sending something tells
  left,
};

/// A request as a transport received it.
struct ApiCall {
  std::string_view method, path, body;
  /// Asked for every token, and several times a second.
  std::function<ClientState()> client = [] { return ClientState::there; };
};

inline constexpr int kClientLeft = 499;  ///< nginx's status for it

struct ApiResponse {
  int status = 200;  ///< kClientLeft: nothing can be sent
  std::string content_type = "application/json";
  std::string body;
  int retry_after_s = 0;  ///< if it is not 0, the client should wait that long
  /// Set for a stream: waits for the next piece of the body and returns it, nullopt at the end. When it is
  /// destroyed before the end, the answers are given up.
  std::function<std::optional<std::string>()> next;
};
ApiResponse response_of(const ApiError& error);

}  // namespace strata
