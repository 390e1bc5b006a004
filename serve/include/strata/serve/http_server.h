#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>
#include <strata/runtime/units.h>
#include <strata/serve/service.h>

namespace strata {

/// Serves a Service over HTTP/1.1, with a thread for each request that is being answered. It has no TLS. A
/// server for this machine alone refuses requests whose header Host names another.
class HttpServer {
 public:
  /// A request that was answered, for a log. The texts are the client's, except the address.
  struct AccessLine {
    std::string_view address, method, target;
    int status = 0;
    double seconds = 0;  ///< from the request's head to the last byte of the answer
  };
  struct Options {
    std::string host = "127.0.0.1";
    int port = 8000;  ///< 0: any that is free
    std::size_t max_body_bytes = kMiB;
    std::size_t max_connections = 88;  ///< requests answered at the same time; others wait
    std::size_t max_open = 1024;       ///< connections, with those that are idle
    std::size_t max_per_address = 64;  ///< connections from one address of another machine
    bool counts_own_address = false;   ///< the limit for an address is one for this machine's, too
    std::vector<std::string> allowed_hosts =
        {};                                  ///< names in the header Host besides this machine's; see below
    std::vector<std::string> api_keys = {};  ///< one of which each request needs, but /health; empty: none
    /// Origins whose web pages may use the server, as "https://chat.example", or "*"; empty: no others.
    std::vector<std::string> allowed_origins = {};
    std::chrono::seconds request_limit{
        30};  ///< from a request's first byte to its last, waits for a thread aside
    std::chrono::seconds idle_limit{5};    ///< between two requests of a connection
    std::chrono::seconds write_limit{10};  ///< for a client that does not read
    /// Told of each request, from several threads; null: nobody is.
    std::function<void(const AccessLine&)> on_request = nullptr;
  };
  // Without allowed hosts, a server for other machines answers for any name.
  /// Whether start() could listen with these options: what is wrong can be said before a model is read.
  /// Errors: as start(), and `invalid` for what is no origin.
  static Status check(const Options& options);
  /// Answers from now on. `service` must outlive the server, which makes it give up if connections cannot be
  /// accepted any more. Errors: `unsupported` if this build has no HTTP; `io_error` with the address if it
  /// cannot be bound; `out_of_memory` if the threads cannot be started.
  static Result<std::unique_ptr<HttpServer>> start(Service& service, const Options& options);
  virtual ~HttpServer() = default;

  virtual int port() const noexcept = 0;
  /// Lets answers end that are being sent, closes all connections and joins the threads. Call it after
  /// Service::run() has returned.
  virtual void stop() = 0;
};

}  // namespace strata
