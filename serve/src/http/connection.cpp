#include "http/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace strata::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kStopCheck{100};
constexpr milliseconds kLinger{1000};
constexpr std::size_t kLingerBytes = std::size_t{64} << 20U;
constexpr std::size_t kBlockBytes = 16384;
constexpr std::string_view kEndOfHead = "\r\n\r\n";

/// Returns the events that are there, 0 after the limit.
int poll_socket(int socket, short events, milliseconds limit) {
  pollfd waited{socket, events, 0};
  const int n = ::poll(&waited, 1, static_cast<int>(std::max<std::int64_t>(0, limit.count())));
  return n > 0 ? waited.revents : 0;
}

using Address = int (*)(int, sockaddr*, socklen_t*);
void name_address(Address address_of, int socket, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "";
  if (address_of(socket, generic, &length) != 0 ||
      ::getnameinfo(generic, length, host, sizeof(host), service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  ip = host;
  port = std::atoi(service);
}

}  // namespace

Connection::Connection(socket_t socket, const ConnectionLimits& limits, const std::atomic<bool>& stopping)
    : socket_(socket), limits_(limits), stopping_(stopping) {
  begin_request();
}

Connection::~Connection() { ::close(socket_); }

void Connection::begin_request() {
  buffer_.erase(0, begin_);
  begin_ = searched_ = left_ = 0;
  begun_ = !buffer_.empty();
  deadline_ = steady_clock::now() + (begun_ ? limits_.request : limits_.idle);
}

Connection::Head Connection::receive_head() {
  for (;;) {
    const std::size_t end = buffer_.find(kEndOfHead, searched_ - std::min(searched_, kEndOfHead.size() - 1));
    if (end != std::string::npos || buffer_.size() >= limits_.head_bytes) return Head::there;
    searched_ = buffer_.size();
    const ssize_t n = receive(limits_.head_bytes - buffer_.size());
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return begun_ ? Head::partial : Head::none;
    if (n <= 0) return n == 0 && begun_ ? Head::there : Head::ended;
    if (!begun_) deadline_ = steady_clock::now() + limits_.request;
    begun_ = true;
  }
}

void Connection::begin_draining() {
  ::shutdown(socket_, SHUT_WR);
  deadline_ = steady_clock::now() + kLinger;
}

bool Connection::drain() {
  std::array<char, kBlockBytes> dropped;
  while (drained_ < kLingerBytes) {
    const ssize_t n = ::recv(socket_, dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return steady_clock::now() < deadline_;
    if (n <= 0) return false;
    drained_ += static_cast<std::size_t>(n);
  }
  return false;
}

bool Connection::wait_until(short events, Time deadline) const {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return false;
    if (poll_socket(socket_, events, left) != 0) return true;
  }
}

Connection::Client Connection::client() const {
  const int events = poll_socket(socket_, POLLIN | POLLRDHUP, milliseconds(0));
  if ((events & (POLLHUP | POLLERR | POLLNVAL)) != 0) return Client::left;
  return (events & POLLRDHUP) != 0 ? Client::sends_no_more : Client::there;
}

std::string Connection::peer() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "unknown";
  if (address.ss_family == AF_INET) {
    in_addr ip{};
    std::memcpy(&ip, &reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, sizeof(ip));
    const bool is_own = (ntohl(ip.s_addr) >> 24U) == 127;
    return is_own ? std::string() : std::string(reinterpret_cast<const char*>(&ip), sizeof(ip));
  }
  in6_addr ip{};
  std::memcpy(&ip, &reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr, sizeof(ip));
  const auto* const bytes = reinterpret_cast<const char*>(&ip);
  if (IN6_IS_ADDR_LOOPBACK(&ip)) return {};
  if (!IN6_IS_ADDR_V4MAPPED(&ip)) return {bytes, 8};
  return bytes[12] == 127 ? std::string() : std::string(bytes + 12, 4);
}

// Appends what has arrived to the buffer, at most so many bytes.
ssize_t Connection::receive(std::size_t most) {
  const std::size_t before = buffer_.size();
  buffer_.resize(before + std::min(most, kBlockBytes));
  ssize_t n = -1;
  do {
    n = ::recv(socket_, buffer_.data() + before, buffer_.size() - before, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  const int error = errno;
  buffer_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  errno = error;
  return n;
}

// Waits for more of the body.
ssize_t Connection::fill() {
  bool is_there = false;
  while (left_ > 0 && !is_there && steady_clock::now() < deadline_ && !stopping_)
    is_there = wait_until(POLLIN, std::min(deadline_, steady_clock::now() + kStopCheck));
  buffer_.clear();
  begin_ = 0;
  const ssize_t n = is_there ? receive(left_) : -1;
  if (n <= 0) {
    broken_ = true;
    return n;
  }
  left_ -= static_cast<std::size_t>(n);
  return n;
}

ssize_t Connection::read(char* into, std::size_t size) {
  if (broken_) return -1;
  if (begin_ == buffer_.size()) {
    const ssize_t n = fill();
    if (n <= 0) return n;
  }
  const std::size_t n = std::min(size, buffer_.size() - begin_);
  std::memcpy(into, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* from, std::size_t size) {
  const Time until = steady_clock::now() + write_limit_;
  for (;;) {
    const ssize_t n = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if ((errno != EAGAIN && errno != EWOULDBLOCK) || !wait_until(POLLOUT, until)) break;
  }
  broken_ = true;
  return -1;
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  name_address(::getpeername, socket_, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  name_address(::getsockname, socket_, ip, port);
}

}  // namespace strata::detail
