#include "http/request_checks.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/runtime/str.h>
#include <strata/serve/local_host.h>

namespace strata::detail {
namespace {

constexpr std::size_t kMaxShownBytes = 80;  // bytes of a client's own text in a message

/// Whether a body is JSON by its header. Other types are refused because a web page may send those to any
/// address without being asked to prove that it is allowed to.
bool is_json(std::string type) {
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view json = "application/json";
  return type.starts_with(json) &&
         (type.size() == json.size() || type[json.size()] == ';' || type[json.size()] == ' ');
}

/// The error in the headers that tell how long a body is; empty: none. httplib takes the first length of
/// several, and what is no number for 0 or a very large one.
std::string problem_of_length(const httplib::Request& request) {
  const std::string length = request.get_header_value("Content-Length");
  if (request.has_header("Transfer-Encoding")) {
    const std::string encoding = request.get_header_value("Transfer-Encoding");
    if (encoding != "chunked")
      return str("the header Transfer-Encoding is '", encoding.substr(0, kMaxShownBytes),
                 "'; only chunked is known");
    if (!length.empty()) return "a body is chunked or has the header Content-Length, not both";
  }
  if (request.get_header_value_count("Content-Length") > 1)
    return "there is more than one header Content-Length";
  if (length.find_first_not_of("0123456789") != std::string::npos)
    return str("the header Content-Length is '", length.substr(0, kMaxShownBytes),
               "'; it must be the number of bytes of the body");
  return {};
}

// Takes as long for any text of this length, so that time does not tell how much of a key is right.
bool is_same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differs = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return differs == 0;
}

}  // namespace

RequestChecks::RequestChecks(const HttpServer::Options& options, const CrossOrigin& cross_origin)
    : options_(options), cross_origin_(cross_origin), only_local_(is_this_machine(options.host)) {}

ApiError RequestChecks::too_large() const {
  return {413,
          str("the body is larger than ", options_.max_body_bytes, " bytes, which --max-body allows"),
          {},
          "body_too_large"};
}

std::optional<ApiError> RequestChecks::problem_of_head(const httplib::Request& request) const {
  const std::size_t n_hosts = request.get_header_value_count("Host");
  if (n_hosts > 1 || (n_hosts == 0 && request.version == "HTTP/1.1"))
    return ApiError{
        400, str("the request has ", n_hosts, " headers Host; HTTP/1.1 has exactly one"), {}, "bad_request"};
  if (auto error = problem_of_host(request.get_header_value("Host"))) return error;
  if (cross_origin_.is_preflight(request)) return cross_origin_.problem_of(request);
  if (options_.api_keys.empty() || request.path == "/health" || has_key(request)) return std::nullopt;
  return ApiError{
      401, "this server needs one of the keys of its file: Authorization: Bearer KEY", {}, "invalid_api_key"};
}

// A page whose name an attacker's DNS points to this machine sends that name (DNS rebinding).
std::optional<ApiError> RequestChecks::problem_of_host(const std::string& host) const {
  const std::vector<std::string>& allowed = options_.allowed_hosts;
  if ((!only_local_ && allowed.empty()) || host.empty() || is_this_machine(host)) return std::nullopt;
  if (std::any_of(allowed.begin(), allowed.end(), [&](const auto& name) { return is_host(host, name); }))
    return std::nullopt;
  return ApiError{403,
                  str("the request is for '", host.substr(0, kMaxShownBytes),
                      "', which this server does not answer for; --allowed-host NAME allows it",
                      only_local_ ? ", and --host ADDRESS makes the server one for other machines" : ""),
                  {},
                  "host_not_allowed"};
}

bool RequestChecks::has_key(const httplib::Request& request) const {
  const std::string given = request.get_header_value("Authorization");
  const std::size_t space = given.find(' ');
  if (!is_host(given.substr(0, space), "bearer") || space == std::string::npos) return false;
  const std::string_view key = std::string_view(given).substr(space + 1);
  return std::any_of(options_.api_keys.begin(), options_.api_keys.end(),
                     [&](const std::string& each) { return is_same_secret(key, each); });
}

bool RequestChecks::has_large_body(const httplib::Request& request) const {
  const std::string length = request.get_header_value("Content-Length");
  std::size_t bytes = 0;
  const auto [end, code] = std::from_chars(length.data(), length.data() + length.size(), bytes);
  return code == std::errc::result_out_of_range || bytes > options_.max_body_bytes;
}

std::optional<ApiError> RequestChecks::read_body(const httplib::Request& request,
                                                 const httplib::ContentReader& reader,
                                                 std::string& body) const {
  if (!is_json(request.get_header_value("Content-Type")))
    return ApiError{415,
                    "the body must be JSON, with the header Content-Type: application/json",
                    {},
                    "unsupported_media_type"};
  if (std::string problem = problem_of_length(request); !problem.empty())
    return ApiError{400, std::move(problem), {}, "bad_request"};
  if (has_large_body(request)) return too_large();
  // There is no body; httplib would wait for one until the client closes the connection.
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) return std::nullopt;
  bool fits = true;
  const bool was_read = reader([&](const char* data, std::size_t n) {
    fits = body.size() + n <= options_.max_body_bytes;
    if (fits) body.append(data, n);
    return fits;
  });
  if (!fits) return too_large();
  if (!was_read) return ApiError{400, "the body could not be read to its end", {}, "incomplete_body"};
  return std::nullopt;
}

}  // namespace strata::detail
