#pragma once

#include <optional>
#include <string>

#include <httplib.h>

#include <strata/serve/api_error.h>
#include <strata/serve/http_server.h>

#include "http/cross_origin.h"

namespace strata::detail {

/// Checks requests before the service sees them: a request must be for this server by its host, with a key if
/// there are keys, and with a body of JSON that is not too large. Any thread may ask.
class RequestChecks {
 public:
  /// Both outlive it.
  RequestChecks(const HttpServer::Options& options, const CrossOrigin& cross_origin);

  /// The error in a request before its body is read; empty: none.
  std::optional<ApiError> problem_of_head(const httplib::Request& request) const;
  /// Reads the body, which is left empty where the request has none. What is wrong with it; empty: nothing.
  std::optional<ApiError> read_body(const httplib::Request& request, const httplib::ContentReader& reader,
                                    std::string& body) const;
  /// Whether the header says more bytes than are allowed.
  bool has_large_body(const httplib::Request& request) const;
  ApiError too_large() const;

 private:
  std::optional<ApiError> problem_of_host(const std::string& host) const;
  bool has_key(const httplib::Request& request) const;

  const HttpServer::Options& options_;
  const CrossOrigin& cross_origin_;
  const bool only_local_;
};

}  // namespace strata::detail
