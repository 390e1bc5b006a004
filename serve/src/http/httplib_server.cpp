// HTTP by cpp-httplib 0.11. What it lacks is added where it lets a server do so: a class derived from its
// Server may read and write by a Stream of its own.
#include <strata/serve/http_server.h>

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <httplib.h>

#include <strata/runtime/str.h>

#include "http/connection.h"
#include "http/connection_loop.h"
#include "http/cross_origin.h"
#include "http/listen_address.h"
#include "http/request_checks.h"

namespace strata {
namespace {

using detail::Connection;
using detail::ConnectionLoop;

constexpr std::size_t kHeadBytes = 64 * kKiB;
constexpr std::chrono::milliseconds kPoll{2};
constexpr std::chrono::seconds kSendLimit{15};  // for answers that are being sent at the end

// The questions of a handler to Request::progress, which httplib has for clients and leaves empty here.
constexpr std::uint64_t kIsThere = 0, kStillSends = 1;

/// httplib's server with our connections.
class ConnectionServer final : public httplib::Server {
 public:
  /// Whoever has accepted a connection gives it away.
  std::function<void(socket_t)> add;

  /// Returns whether another request may follow.
  bool serve_request(Connection& connection) {
    bool was_read = false, is_last = false, leaves_body = false;
    const bool sent = process_request(connection, false, is_last, [&](httplib::Request& request) {
      was_read = true;
      connection.begin_body();
      request.ranges.clear();
      leaves_body = request.method != "POST" &&
                    (request.has_header("Content-Length") || request.has_header("Transfer-Encoding"));
      // Another function for clients: what is about to be answered. After an error the rest of a body may be
      // unread.
      request.progress = [&](std::uint64_t asked, std::uint64_t) {
        const Connection::Client client = connection.client();
        return asked == kStillSends ? client == Connection::Client::there
                                    : client != Connection::Client::left;
      };
      request.response_handler = [&](const httplib::Response& response) {
        leaves_body = leaves_body || response.status >= 400;
        return true;
      };
    });
    return sent && was_read && !is_last && !leaves_body && !connection.is_broken();
  }

 private:
  bool process_and_close_socket(socket_t socket) override {
    add(socket);
    return true;
  }
};

/// Runs what httplib wants to be run at once: it is ConnectionServer::add.
class AtOnce final : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> add) override { add(); }
  void shutdown() override {}
};

bool takes_body(std::string_view path) {
  return std::find(std::begin(kPostPaths), std::end(kPostPaths), path) != std::end(kPostPaths);
}

/// The request that this thread answers. httplib knows the address of no request that it cannot read.
struct Answered {
  std::chrono::steady_clock::time_point begin;
  std::string address;
};
thread_local Answered answered;

class HttplibServer final : public HttpServer {
 public:
  HttplibServer(Service& service, const Options& options)
      : service_(service),
        options_(options),
        cross_origin_(options_.allowed_origins),
        checks_(options_, cross_origin_) {
    set_limits();
    set_handlers();
  }
  ~HttplibServer() override { HttplibServer::stop(); }
  HttplibServer(const HttplibServer&) = delete;
  HttplibServer& operator=(const HttplibServer&) = delete;

  Status listen() {
    STRATA_TRY(check(options_));
    STRATA_TRY_ASSIGN(loop_,
                      ConnectionLoop::create(loop_options(), {[this](Connection& c) { return serve(c); },
                                                              [this](auto why) { return refusal(why); }}));
    server_.add = [this](socket_t socket) { loop_->add(socket); };
    errno = 0;
    const bool any = options_.port == 0;
    port_ = any ? server_.bind_to_any_port(options_.host) : options_.port;
    if (any ? port_ < 0 : !server_.bind_to_port(options_.host, port_))
      return Status::error(Code::io_error, str(options_.host, ":", options_.port, " cannot be bound",
                                               errno != 0 ? str(": ", std::strerror(errno)) : ""));
    // httplib lets five wait; the system resets connections that find no room.
    if (::listen(socket_, SOMAXCONN) != 0)
      return Status::error(Code::io_error, str(options_.host, ":", port_, ": ", std::strerror(errno)));
    listener_ = std::jthread([this] { accept_all(); });
    (void)::pthread_setname_np(listener_.native_handle(), "st-accept");
    while (!server_.is_running() && !listener_ended_) std::this_thread::sleep_for(kPoll);
    return {};
  }

  int port() const noexcept override { return port_; }

  void stop() override {
    if (!listener_.joinable()) return;
    // httplib cuts streams short once it stops listening.
    stopping_ = true;
    loop_->begin_stop();
    for (auto waited = kPoll; service_.n_in_flight() > 0 && waited < kSendLimit; waited += kPoll)
      std::this_thread::sleep_for(kPoll);
    server_.stop();
    listener_.join();
    loop_->stop();
  }

 private:
  bool serve(Connection& connection) {
    answered.begin = std::chrono::steady_clock::now();
    int port = 0;
    connection.get_remote_ip_and_port(answered.address, port);
    return server_.serve_request(connection);
  }

  // httplib returns before stop() if the system refuses it sockets. A server that nobody can reach should
  // end.
  void accept_all() noexcept {
    try {
      (void)server_.listen_after_bind();
      if (!stopping_)
        service_.give_up(Status::error(Code::io_error, str("connections to ", options_.host, ":", port_,
                                                           " cannot be accepted any more")));
    } catch (const std::exception&) {
      service_.give_up(Status::heap_exhausted());
    }
    listener_ended_ = true;
  }

  void set_limits() {
    server_.new_task_queue = [] { return new AtOnce; };
    server_.set_payload_max_length(options_.max_body_bytes);
    server_.set_keep_alive_timeout(options_.idle_limit.count());
    server_.set_tcp_nodelay(true);
    // httplib's own let two servers share a port.
    server_.set_socket_options([this](socket_t socket) {
      socket_ = socket;
      const int yes = 1;
      (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
  }

  void set_handlers() {
    // Not by patterns: std::regex recurses for each character of a path.
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      using Routed = httplib::Server::HandlerResponse;
      if (const auto error = checks_.problem_of_head(request)) {
        send(service_.refuse(*error, request.path), response);
        return Routed::Handled;
      }
      if (cross_origin_.is_preflight(request)) {
        cross_origin_.answer_preflight(request, response);
        return Routed::Handled;
      }
      if (request.method == "POST" && takes_body(request.path)) return Routed::Unhandled;
      answer(request, {}, response);
      return Routed::Handled;
    });
    for (const std::string_view path : kPostPaths)
      server_.Post(std::string(path), [this](const httplib::Request& request, httplib::Response& response,
                                             const httplib::ContentReader& reader) {
        std::string body;
        if (const auto error = checks_.read_body(request, reader, body))
          send(service_.refuse(*error, request.path), response);
        else
          answer(request, body, response);
      });
    server_.set_expect_100_continue_handler(
        [this](const httplib::Request& request, httplib::Response& response) {
          if (!checks_.has_large_body(request)) return 100;
          return response.status = 413;  // httplib 0.11 does not set it
        });
    server_.set_post_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (request.response_handler) (void)request.response_handler(response);
      cross_origin_.add_headers(request, response);
      if (response.status == 204) response.headers.erase("Content-Length");
      if (response.status < 400) return;
      response.headers.erase("Keep-Alive");
      response.headers.erase("Connection");
      response.set_header("Connection", "close");
    });
    if (options_.on_request != nullptr)
      server_.set_logger([this](const httplib::Request& request, const httplib::Response& response) {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - answered.begin;
        options_.on_request(
            {answered.address, request.method, request.target, response.status, took.count()});
      });
    // The handler answers requests that httplib refuses by itself. All other errors have a body, or nobody
    // who could read it.
    server_.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (response.body.empty() && response.status != kClientLeft)
        send(service_.refuse(httplib_error(response.status), request.path), response);
    });
  }

  ConnectionLoop::Options loop_options() const {
    // A half of what the system lets this process open; the rest is for files.
    ::rlimit files{};
    const bool is_known = ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
    const std::size_t most = is_known ? std::max<std::size_t>(1, files.rlim_cur / 2) : options_.max_open;
    return {.limits = {kHeadBytes, 2 * options_.max_body_bytes + kHeadBytes, options_.request_limit,
                       options_.idle_limit, options_.write_limit},
            .n_threads = options_.max_connections,
            .max_open = std::min(options_.max_open, most),
            .max_per_address = options_.max_per_address,
            .counts_own = options_.counts_own_address};
  }

  /// The bytes of a response for which httplib is not asked.
  std::string refusal(ConnectionLoop::Refusal why) {
    const bool is_one = why == ConnectionLoop::Refusal::too_many_of_address;
    const ApiError error =
        is_one ? ApiError{429,
                          str("this address has more than ", options_.max_per_address, " connections"),
                          {},
                          "too_many_connections"}
               : ApiError{503, "the server has no room for more connections", {}, "too_many_connections"};
    const ApiResponse response = service_.refuse(error, {});
    return str("HTTP/1.1 ", response.status, is_one ? " Too Many Requests" : " Service Unavailable",
               "\r\nContent-Type: ", response.content_type, "\r\nContent-Length: ", response.body.size(),
               "\r\nRetry-After: 1\r\n", cross_origin_.lines_for_any(), "Connection: close\r\n\r\n",
               response.body);
  }

  ApiError httplib_error(int status) const {
    if (status == 413) return checks_.too_large();
    if (status >= 500) return {500, "the request failed", {}, "internal"};
    return {status, "this is not a request of HTTP/1.1 that can be read", {}, "bad_request"};
  }
  void answer(const httplib::Request& request, std::string_view body, httplib::Response& response) {
    send(service_.handle({request.method == "HEAD" ? "GET" : std::string_view(request.method), request.path,
                          body, [&request] { return client_of(request); }}),
         response);
  }

  // HTTP/1.0 has no chunks, by which a client that sends no more could be asked whether it is there.
  static ClientState client_of(const httplib::Request& request) {
    if (!request.progress(kIsThere, 0)) return ClientState::left;
    const bool may_ask = request.version == "HTTP/1.1";
    return may_ask && !request.progress(kStillSends, 0) ? ClientState::sends_no_more : ClientState::there;
  }

  static void send(ApiResponse answer, httplib::Response& response) {
    response.status = answer.status;
    if (answer.status == 401) response.set_header("WWW-Authenticate", "Bearer");
    if (answer.retry_after_s > 0) response.set_header("Retry-After", std::to_string(answer.retry_after_s));
    if (!answer.next) return response.set_content(answer.body, answer.content_type);
    response.set_header("Cache-Control", "no-cache");
    response.set_chunked_content_provider(
        answer.content_type, [next = std::move(answer.next)](std::size_t, httplib::DataSink& sink) {
          const std::optional<std::string> piece = next();
          if (piece) return sink.write(piece->data(), piece->size());
          sink.done();
          return true;
        });
  }

  Service& service_;
  const Options options_;
  const detail::CrossOrigin cross_origin_;
  const detail::RequestChecks checks_;
  ConnectionServer server_;
  std::unique_ptr<ConnectionLoop> loop_;  // after the server, which its threads use
  std::atomic<bool> stopping_{false};
  int port_ = 0;
  socket_t socket_ = INVALID_SOCKET;  // that listens; httplib owns it
  std::atomic<bool> listener_ended_{false};
  std::jthread listener_;  // last: it uses what is above
};

}  // namespace

Status HttpServer::check(const Options& options) {
  STRATA_TRY(detail::CrossOrigin::check(options.allowed_origins));
  return detail::check_listen_address(options.host, options.port);
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(Service& service, const Options& options) {
  auto server = std::make_unique<HttplibServer>(service, options);
  STRATA_TRY(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace strata
