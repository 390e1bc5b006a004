#pragma once

#include <optional>
#include <string>
#include <vector>

#include <httplib.h>

#include <strata/runtime/status.h>
#include <strata/serve/api_error.h>

namespace strata::detail {

/// The web pages of other origins that may use the server (the CORS protocol of the Fetch standard, section
/// 3.2). Without any, no answer has a header about it. Any thread may ask.
class CrossOrigin {
 public:
  /// `allowed`: origins as browsers send them, or "*" for all; outlives it.
  explicit CrossOrigin(const std::vector<std::string>& allowed) : allowed_(allowed) {}

  /// Errors: `invalid` with the text that is no origin.
  static Status check(const std::vector<std::string>& allowed);

  /// Whether a browser asks what a page may send, which it does without a key.
  bool is_preflight(const httplib::Request& request) const;
  /// That the page of a preflight is of an origin that is not allowed: 403.
  std::optional<ApiError> problem_of(const httplib::Request& preflight) const;
  void answer_preflight(const httplib::Request& request, httplib::Response& response) const;
  /// Lets the page read an answer, also one that tells an error.
  void add_headers(const httplib::Request& request, httplib::Response& response) const;
  /// The lines of it in an answer to a request that was not read; empty if its origin would matter.
  std::string lines_for_any() const;

 private:
  std::string allowed_for(const std::string& origin) const;

  const std::vector<std::string>& allowed_;
};

}  // namespace strata::detail
