#include "http/cross_origin.h"

#include <algorithm>
#include <string_view>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr const char *kOrigin = "Origin", *kAllowOrigin = "Access-Control-Allow-Origin",
                     *kRequestMethod = "Access-Control-Request-Method",
                     *kRequestHeaders = "Access-Control-Request-Headers",
                     *kRequestLocal = "Access-Control-Request-Private-Network";
constexpr const char* kAny = "*";
constexpr std::size_t kMaxHeaderBytes = 1024, kMaxShownOrigin = 80;

/// A scheme and a host, with a port or without, as browsers write them.
bool is_origin(std::string_view text) {
  const std::size_t host = text.find("://");
  if (host == std::string_view::npos || host == 0 || host + 3 == text.size()) return false;
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c < '\x7f' && !(c >= 'A' && c <= 'Z') && c != '*' && c != ',';
  });
  return is_plain && text.find_first_of("/?#@", host + 3) == std::string_view::npos;
}

bool is_list_of_names(std::string_view text) {
  return !text.empty() && text.size() <= kMaxHeaderBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

Status CrossOrigin::check(const std::vector<std::string>& allowed) {
  for (const std::string& each : allowed)
    if (each != kAny && !is_origin(each))
      return Status::error(Code::invalid,
                           str("--allow-origin ", each,
                               ": an origin is a scheme and a host in lower case, with a port or without and "
                               "without a path, as https://chat.example or http://localhost:3000; * is any"));
  return {};
}

// What the header says; empty: there is none. A single origin is said whoever asks.
std::string CrossOrigin::allowed_for(const std::string& origin) const {
  if (std::find(allowed_.begin(), allowed_.end(), kAny) != allowed_.end()) return kAny;
  if (allowed_.size() == 1) return allowed_.front();
  return std::find(allowed_.begin(), allowed_.end(), origin) != allowed_.end() ? origin : "";
}

bool CrossOrigin::is_preflight(const httplib::Request& request) const {
  return !allowed_.empty() && request.method == "OPTIONS" && request.has_header(kOrigin) &&
         request.has_header(kRequestMethod);
}

std::optional<ApiError> CrossOrigin::problem_of(const httplib::Request& preflight) const {
  const std::string origin = preflight.get_header_value(kOrigin), allowed = allowed_for(origin);
  if (allowed == kAny || allowed == origin) return std::nullopt;
  return ApiError{403,
                  str("pages of the origin '", origin.substr(0, kMaxShownOrigin),
                      "' may not use this server; --allow-origin ORIGIN allows it"),
                  {},
                  "origin_not_allowed"};
}

// Clients of OpenAI's send headers of their own, and a browser takes no star for the one with the key.
void CrossOrigin::answer_preflight(const httplib::Request& request, httplib::Response& response) const {
  const std::string asked = request.get_header_value(kRequestHeaders);
  response.status = 204;
  response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  response.set_header("Access-Control-Allow-Headers",
                      is_list_of_names(asked) ? asked : "Authorization, Content-Type");
  response.set_header("Access-Control-Max-Age", "600");
  // Chrome asks for it where a page from elsewhere wants a server of this machine.
  if (request.has_header(kRequestLocal)) response.set_header("Access-Control-Allow-Private-Network", "true");
}

void CrossOrigin::add_headers(const httplib::Request& request, httplib::Response& response) const {
  if (allowed_.empty()) return;
  const std::string allowed = allowed_for(request.get_header_value(kOrigin));
  if (allowed != kAny) response.set_header("Vary", kOrigin);
  if (allowed.empty()) return;
  response.set_header(kAllowOrigin, allowed);
  response.set_header("Access-Control-Expose-Headers", "Retry-After");
}

std::string CrossOrigin::lines_for_any() const {
  const std::string allowed = allowed_for({});
  return allowed.empty() ? "" : str(kAllowOrigin, ": ", allowed, "\r\n");
}

}  // namespace strata::detail
