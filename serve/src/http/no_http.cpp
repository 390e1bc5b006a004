#include <strata/serve/http_server.h>

namespace strata {

Status HttpServer::check(const Options& /*options*/) {
  return Status::error(
      Code::unsupported,
      "this build has no HTTP server: install cpp-httplib 0.11 (Debian's libcpp-httplib-dev) and "
      "configure again");
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(Service& /*service*/, const Options& options) {
  return check(options);
}

}  // namespace strata
