#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include <strata/runtime/status.h>
#include <strata/runtime/units.h>
#include <strata/serve/service.h>

namespace strata {

/// Serves a Service over HTTP/1.1, with a thread for each connection that is being served. It has no TLS and
/// asks for no key. A server for this machine alone refuses requests whose header Host names another.
class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 8000;  ///< 0: any that is free
    std::size_t max_body_bytes = kMiB;
    std::size_t max_connections = 88;        ///< served at the same time; others wait
    std::chrono::seconds request_limit{30};  ///< from the first byte of a request to its last
    std::chrono::seconds idle_limit{5};      ///< between two requests of a connection
    std::chrono::seconds write_limit{10};    ///< for a client that does not read
  };
  /// Whether start() could listen with these options: what is wrong can be said before a model is read.
  /// Errors: as start().
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
