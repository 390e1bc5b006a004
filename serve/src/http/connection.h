#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <httplib.h>

namespace strata::detail {

struct ConnectionLimits {
  std::size_t head_bytes = 0;  ///< bytes of a request's first line and its headers
  std::size_t body_bytes = 0;  ///< bytes of its body as it is sent, in chunks or compressed
  std::chrono::seconds request{30}, idle{5}, write{10};
};

/// A client's connection, as a stream that httplib reads requests from and writes responses to. httplib's own
/// bounds the time of each read, so a client could send a byte now and then for ever; this one bounds the
/// time and the bytes of a whole request, and knows whether the client has left. The head of a request is
/// received without waiting, before httplib reads it. Used by one thread at a time.
class Connection final : public httplib::Stream {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `stopping` outlives the connection: once it is true, nothing more is read.
  Connection(socket_t socket, const ConnectionLimits& limits, const std::atomic<bool>& stopping);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  enum class Head : std::uint8_t {
    none,     ///< no byte of another request has arrived
    partial,  ///< its end has not arrived
    there,    ///< it is there, or can never be: httplib reads what there is, and refuses it
    ended,    ///< the client has closed the connection
  };
  /// Receives what has arrived of a request's head. Does not wait.
  Head receive_head();
  /// No more of the head is received: what is there is read as a request.
  void give_up_head() noexcept { left_ = 0; }
  /// The bytes that have been received and not read yet.
  std::string_view received() const noexcept { return std::string_view(buffer_).substr(begin_); }
  /// Until when the rest of the head, or the first byte of a request, must arrive.
  Time deadline() const noexcept { return deadline_; }
  /// The request waits for a thread from now on, which is not the client's time.
  void begin_waiting() noexcept { waits_since_ = std::chrono::steady_clock::now(); }
  /// The request has a thread; `waits`: whether the thread may wait for a client that does not read.
  void end_waiting(bool waits) noexcept {
    deadline_ += std::chrono::steady_clock::now() - waits_since_;
    write_limit_ = waits ? limits_.write : std::chrono::seconds(0);
  }
  /// The head of the request has been read.
  void begin_body() noexcept { left_ = limits_.body_bytes; }
  /// The request has been answered; the next one has a deadline of its own.
  void begin_request();

  /// Nothing more is answered: ends sending, so that the client sees the end of the response.
  void begin_draining();
  /// Whether the client still sends; what it sends is dropped. The response could get lost if the socket were
  /// closed before all of it is received.
  bool drain();

  enum class Client : std::uint8_t {
    there,
    sends_no_more,  ///< it has closed its half, or all of the connection: only an attempt to send tells
    left,
  };
  Client client() const;
  /// Whether the rest of the connection cannot be read as a request, since a limit was reached.
  bool is_broken() const noexcept { return broken_; }
  /// The peer whose connections are counted together: an IPv4 address, or a network /64; empty for this
  /// machine's own.
  std::string peer() const;

  bool is_readable() const override { return client() != Client::left; }
  bool is_writable() const override { return client() != Client::left; }
  ssize_t read(char* into, std::size_t size) override;
  ssize_t write(const char* from, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool wait_until(short events, Time deadline) const;
  ssize_t receive(std::size_t most);
  ssize_t fill();

  const socket_t socket_;
  const ConnectionLimits limits_;
  const std::atomic<bool>& stopping_;
  std::string buffer_;
  // Positions in the buffer: read by httplib, searched for the end of the head.
  std::size_t begin_ = 0, searched_ = 0;
  std::size_t left_ = 0;  // bytes that the body may still have
  std::size_t drained_ = 0;
  Time deadline_, waits_since_;
  std::chrono::seconds write_limit_{0};
  bool begun_ = false;  // a byte of the request has arrived
  bool broken_ = false;
};

}  // namespace strata::detail
