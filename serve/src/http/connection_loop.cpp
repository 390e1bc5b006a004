#include "http/connection_loop.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

using std::chrono::steady_clock;

bool asks_for_health(std::string_view head) {
  for (const std::string_view method : {"GET ", "HEAD "}) {
    constexpr std::string_view kHealth = "/health";
    if (!head.starts_with(method)) continue;
    const std::string_view target = head.substr(method.size());
    return target.starts_with(kHealth) && target.size() > kHealth.size() &&
           (target[kHealth.size()] == ' ' || target[kHealth.size()] == '?');
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<ConnectionLoop>> ConnectionLoop::create(const Options& options, Calls calls) {
  std::unique_ptr<ConnectionLoop> made(new ConnectionLoop(options, std::move(calls)));
  ConnectionLoop* const loop = made.get();
  loop->wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (loop->wake_ < 0)
    return Status::error(Code::io_error, str("an eventfd cannot be made: ", std::strerror(errno)));
  try {
    const auto begin = [&](bool is_health, const char* name) {
      loop->threads_.emplace_back([loop, is_health] { loop->serve_queue(is_health); });
      (void)::pthread_setname_np(loop->threads_.back().native_handle(), name);
    };
    begin(true, "st-health");
    while (loop->threads_.size() <= options.n_threads) begin(false, "st-http");
    loop->poller_ = std::jthread([loop](const std::stop_token& stop) { loop->poll_all(stop); });
    (void)::pthread_setname_np(loop->poller_.native_handle(), "st-poll");
  } catch (const std::exception& e) {
    return Status::error(Code::out_of_memory,
                         str("of ", options.n_threads + 2, " threads for connections only ",
                             loop->threads_.size(), " could be started: ", e.what()));
  }
  return made;
}

void ConnectionLoop::add(socket_t socket) noexcept {
  try {
    Members one;
    one.emplace_back().connection = std::make_unique<Connection>(socket, options_.limits, stopping_);
    const MutexLock lock(mutex_);
    arrived_.splice(arrived_.end(), one);
  } catch (const std::exception&) {  // no memory
    ::close(socket);
  }
  wake();
}

void ConnectionLoop::begin_stop() noexcept {
  stopping_ = true;
  wake();
}

void ConnectionLoop::stop() noexcept {
  begin_stop();
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    ready_.changed.notify_all();
    health_.changed.notify_all();
  }
  threads_.clear();
  if (poller_.joinable()) {
    poller_.request_stop();
    wake();
    poller_.join();
  }
  if (wake_ >= 0) ::close(std::exchange(wake_, -1));
}

void ConnectionLoop::wake() noexcept {
  const std::uint64_t one = 1;
  if (wake_ >= 0) (void)!::write(wake_, &one, sizeof(one));
}

void ConnectionLoop::serve_queue(bool is_health) noexcept {
  for (;;) {
    Members one;
    {
      const MutexLock lock(mutex_);
      Queue& queue = is_health ? health_ : ready_;
      while (queue.members.empty() && !ended_) queue.changed.wait(mutex_);
      if (queue.members.empty()) return;
      one.splice(one.end(), queue.members, queue.members.begin());
    }
    one.front().connection->end_waiting(!is_health);  // the thread of /health waits for nobody
    serve(one.front());
    {
      const MutexLock lock(mutex_);
      returned_.splice(returned_.end(), one);
    }
    wake();
  }
}

void ConnectionLoop::serve(Member& member) noexcept {
  Connection& connection = *member.connection;
  bool goes_on = false;
  try {
    goes_on = calls_.serve(connection) && !member.is_refused;
    if (goes_on) connection.begin_request();
  } catch (const std::exception&) {  // no memory, or a header that std::regex gives up on
    goes_on = false;
  }
  member.is_new = true;
  member.drains = !goes_on;
  if (member.drains) connection.begin_draining();
}

void ConnectionLoop::poll_all(const std::stop_token& stop) noexcept {
  while (!has_ended(stop)) {
    try {
      poll_once();
    } catch (const std::exception&) {  // no memory: those that wait are given up, so that there is some
      while (!waiting_.empty()) close(waiting_.begin());
    }
  }
}

bool ConnectionLoop::has_ended(const std::stop_token& stop) {
  const MutexLock lock(mutex_);
  return stop.stop_requested() && waiting_.empty() && arrived_.empty() && returned_.empty();
}

void ConnectionLoop::poll_once() {
  take_arrivals();
  polled_.assign(1, {wake_, POLLIN, 0});
  for (const Member& member : waiting_) polled_.push_back({member.connection->socket(), POLLIN, 0});
  (void)::poll(polled_.data(), polled_.size(), timeout_ms());
  std::uint64_t woken = 0;
  (void)!::read(wake_, &woken, sizeof(woken));
  const Time now = steady_clock::now();
  std::size_t at = 1;
  for (auto member = waiting_.begin(); member != waiting_.end(); ++at) {
    const auto each = member++;
    if (stopping_ || polled_[at].revents != 0 || each->is_new || now >= each->connection->deadline())
      advance(each, now);
  }
}

int ConnectionLoop::timeout_ms() const {
  if (waiting_.empty()) return -1;
  Time first = Time::max();
  for (const Member& member : waiting_) {
    if (member.is_new) return 0;
    first = std::min(first, member.connection->deadline());
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void ConnectionLoop::take_arrivals() {
  Members arrived;
  {
    const MutexLock lock(mutex_);
    arrived.swap(arrived_);
    waiting_.splice(waiting_.end(), returned_);
  }
  for (; !arrived.empty(); waiting_.splice(waiting_.end(), arrived, arrived.begin())) admit(arrived.front());
}

// A connection beyond the limits is admitted all the same: it may ask for /health.
void ConnectionLoop::admit(Member& member) {
  member.peer = member.connection->peer();
  if (member.peer.empty() && options_.counts_own) member.peer = "own";
  const std::size_t most = options_.max_per_address;
  const std::size_t of_peer = ++n_of_peer_[member.peer];
  ++n_open_;
  const auto refuse = [&](Refusal why) {
    member.is_refused = true;
    member.refusal = why;
  };
  if (most > 0 && !member.peer.empty() && of_peer > most && !evict(&member.peer))
    refuse(Refusal::too_many_of_address);
  else if (n_open_ > options_.max_open && !evict(nullptr))
    refuse(Refusal::too_many);
}

// Closes the connection that has the least time left for its request; false if there is none.
bool ConnectionLoop::evict(const std::string* peer) {
  auto found = waiting_.end();
  for (auto each = waiting_.begin(); each != waiting_.end(); ++each)
    if (!each->drains && (peer == nullptr || each->peer == *peer) &&
        (found == waiting_.end() || each->connection->deadline() < found->connection->deadline()))
      found = each;
  if (found == waiting_.end()) return false;
  close(found);
  return true;
}

void ConnectionLoop::advance(Members::iterator member, Time now) {
  Connection& connection = *member->connection;
  member->is_new = false;
  if (member->drains) {
    if (!connection.drain()) close(member);
    return;
  }
  const Connection::Head head = connection.receive_head();
  const bool is_late = now >= connection.deadline();
  if (stopping_ || head == Connection::Head::ended || (head == Connection::Head::none && is_late))
    return close(member);
  if (head == Connection::Head::partial && is_late) connection.give_up_head();
  if (head == Connection::Head::there || (head == Connection::Head::partial && is_late))
    start_request(member);
}

void ConnectionLoop::start_request(Members::iterator member) {
  const bool is_health = asks_for_health(member->connection->received());
  if (member->is_refused && !is_health) {
    const std::string bytes = calls_.refuse(member->refusal);
    (void)member->connection->write(bytes.data(), bytes.size());  // which the empty socket has room for
    member->drains = member->is_new = true;
    return member->connection->begin_draining();
  }
  const MutexLock lock(mutex_);
  if (ended_) return close(member);
  member->connection->begin_waiting();
  Queue& queue = is_health ? health_ : ready_;
  queue.members.splice(queue.members.end(), waiting_, member);
  queue.changed.notify_one();
}

void ConnectionLoop::close(Members::iterator member) noexcept {
  const auto counted = n_of_peer_.find(member->peer);
  if (counted != n_of_peer_.end() && --counted->second == 0) n_of_peer_.erase(counted);
  --n_open_;
  waiting_.erase(member);
}

}  // namespace strata::detail
