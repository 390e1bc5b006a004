#include "http/connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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

Connection::~Connection() {
  ::shutdown(socket_, SHUT_WR);
  const Time until = steady_clock::now() + kLinger;
  for (std::size_t read = 0; read < kLingerBytes && wait_until(POLLIN, until);) {
    const ssize_t n = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (n <= 0) break;
    read += static_cast<std::size_t>(n);
  }
  ::close(socket_);
}

bool Connection::wait_until(short events, Time deadline) const {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return false;
    if (poll_socket(socket_, events, left) != 0) return true;
  }
}

bool Connection::wait_for_request(const std::atomic<bool>& stopping) {
  stopping_ = &stopping;
  const Time until = steady_clock::now() + limits_.idle;
  while (begin_ == end_ && !stopping) {
    if (steady_clock::now() >= until) return false;
    if (poll_socket(socket_, POLLIN, kStopCheck) == 0) continue;
    left_ = buffer_.size();
    deadline_ = until;
    if (fill() <= 0) return false;
  }
  left_ = limits_.head_bytes;
  deadline_ = steady_clock::now() + limits_.request;
  return !stopping;
}

bool Connection::is_open() const {
  const int events = poll_socket(socket_, POLLIN | POLLRDHUP, milliseconds(0));
  return (events & (POLLHUP | POLLERR | POLLNVAL | POLLRDHUP)) == 0;
}

ssize_t Connection::fill() {
  bool is_there = false;
  while (left_ > 0 && !is_there && steady_clock::now() < deadline_ && (stopping_ == nullptr || !*stopping_))
    is_there = wait_until(POLLIN, std::min(deadline_, steady_clock::now() + kStopCheck));
  if (!is_there) {
    broken_ = true;
    return -1;
  }
  const ssize_t n = ::recv(socket_, buffer_.data(), std::min(buffer_.size(), left_), MSG_DONTWAIT);
  if (n <= 0) {
    broken_ = true;
    return n;
  }
  begin_ = 0;
  end_ = static_cast<std::size_t>(n);
  left_ -= end_;
  return n;
}

ssize_t Connection::read(char* into, std::size_t size) {
  if (broken_) return -1;
  if (begin_ == end_) {
    const ssize_t n = fill();
    if (n <= 0) return n;
  }
  const std::size_t n = std::min(size, end_ - begin_);
  std::memcpy(into, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* from, std::size_t size) {
  const Time until = steady_clock::now() + limits_.write;
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
