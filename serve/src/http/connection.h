#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>

#include <httplib.h>

namespace strata::detail {

struct ConnectionLimits {
  std::size_t head_bytes = 0;  ///< of one request: its first line and its headers
  std::size_t body_bytes = 0;  ///< of its body as it is sent, in chunks or compressed
  std::chrono::seconds request{30}, idle{5}, write{10};
};

/// A client's connection, as a stream that httplib reads requests from and writes responses to. httplib's own
/// bounds the time of each read, so a client could send a byte now and then for ever; this one bounds the
/// time and the bytes of a whole request, and knows whether the client has left. Used by one thread.
class Connection final : public httplib::Stream {
 public:
  Connection(socket_t socket, const ConnectionLimits& limits) : socket_(socket), limits_(limits) {}
  /// Closes the socket. What the client still sends is read for a moment first, since it would lose the
  /// response otherwise.
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Waits for the first byte of another request; false if none comes in time or `stopping` becomes true,
  /// which also ends reading the request. `stopping` outlives the connection.
  bool wait_for_request(const std::atomic<bool>& stopping);
  /// The head of the request has been read.
  void begin_body() noexcept { left_ = limits_.body_bytes; }
  /// Whether the client has not closed the connection.
  bool is_open() const;
  /// What follows on the connection cannot be read as a request, since a limit was reached.
  bool is_broken() const noexcept { return broken_; }

  bool is_readable() const override { return is_open(); }
  bool is_writable() const override { return is_open(); }
  ssize_t read(char* into, std::size_t size) override;
  ssize_t write(const char* from, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  bool wait_until(short events, Time deadline) const;
  ssize_t fill();

  const socket_t socket_;
  const ConnectionLimits limits_;
  std::array<char, 4096> buffer_{};
  std::size_t begin_ = 0, end_ = 0;  // bytes of the buffer that httplib has not read
  std::size_t left_ = 0;             // bytes that the head or the body may still have
  Time deadline_;                    // of the request
  const std::atomic<bool>* stopping_ = nullptr;
  bool broken_ = false;
};

}  // namespace strata::detail
