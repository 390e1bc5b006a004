#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace strata::test {

/// A connection that sends any bytes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // the server has answered and closed
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void send_no_more() const { ::shutdown(socket_, SHUT_WR); }
  /// Returns what arrives until `text` is there or the connection is closed.
  std::string read_until(const std::string& text) const {
    std::string all;
    char buffer[4096];
    while (text.empty() || all.find(text) == std::string::npos) {
      pollfd waited{socket_, POLLIN, 0};
      if (::poll(&waited, 1, 20000) <= 0) return all + " (nothing more came)";
      const ssize_t n = ::recv(socket_, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      all.append(buffer, static_cast<std::size_t>(n));
    }
    return all;
  }
  std::string read_all() const { return read_until(""); }

 private:
  int socket_;
};

}  // namespace strata::test
