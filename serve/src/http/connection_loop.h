#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

#include "http/connection.h"

namespace strata::detail {

/// All connections of a server. One thread polls those that have no whole head of a request; a connection
/// takes one of the other threads only from there to the end of the answer, so those that are idle, or slow
/// to send a head, keep nobody waiting. Who is slow to send a body has a thread until the limit of a request:
/// a body is not received before its head has been checked. A thread of its own answers /health, however busy
/// the others are.
class ConnectionLoop {
 public:
  enum class Refusal : std::uint8_t { too_many, too_many_of_address };
  struct Options {
    ConnectionLimits limits;
    std::size_t n_threads = 1;
    std::size_t max_open = 1;         ///< beyond, the connection that has been silent for longest is closed
    std::size_t max_per_address = 0;  ///< the same for one address; 0: so many as of all of them
    bool counts_own = false;          ///< this machine's own address is an address, too
  };
  struct Calls {
    /// Answers a request whose head is there; returns whether another one may follow on the connection.
    std::function<bool(Connection&)> serve;
    /// The bytes of the response to a request for which there is no place.
    std::function<std::string(Refusal)> refuse;
  };
  /// Errors: `out_of_memory` with the number of threads that the system has allowed, `io_error`.
  static Result<std::unique_ptr<ConnectionLoop>> create(const Options& options, Calls calls);
  ~ConnectionLoop() { stop(); }
  ConnectionLoop(const ConnectionLoop&) = delete;
  ConnectionLoop& operator=(const ConnectionLoop&) = delete;

  /// Takes a socket. From any thread.
  void add(socket_t socket) noexcept;
  /// No more requests are read: closes the connections that wait for one.
  void begin_stop() noexcept;
  /// Ends the answers whose requests were read, closes all connections and joins the threads.
  void stop() noexcept;

 private:
  using Time = Connection::Time;
  struct Member {
    std::unique_ptr<Connection> connection;
    std::string peer;
    bool is_new = true;       ///< its bytes may be in the buffer already, which poll() does not see
    bool drains = false;      ///< nothing more is answered
    bool is_refused = false;  ///< there is no place for it
    Refusal refusal = Refusal::too_many;
  };
  using Members = std::list<Member>;  // moved from one to another without memory
  struct Queue {
    Condition changed;
    Members members;
  };
  ConnectionLoop(const Options& options, Calls calls) : options_(options), calls_(std::move(calls)) {}

  void serve_queue(bool is_health) noexcept;
  void serve(Member& member) noexcept;
  void wake() noexcept;
  // Called by the polling thread.
  void poll_all(const std::stop_token& stop) noexcept;
  bool has_ended(const std::stop_token& stop);
  void poll_once();
  int timeout_ms() const;
  void take_arrivals();
  void admit(Member& member);
  bool evict(const std::string* peer);
  void advance(Members::iterator member, Time now);
  void start_request(Members::iterator member);
  void close(Members::iterator member) noexcept;

  const Options options_;
  const Calls calls_;
  std::atomic<bool> stopping_{false};
  int wake_ = -1;  // an eventfd
  // Used by the polling thread alone.
  Members waiting_;
  std::vector<::pollfd> polled_;
  std::map<std::string, std::size_t> n_of_peer_;
  std::size_t n_open_ = 0;

  Mutex mutex_;
  Members arrived_ STRATA_GUARDED_BY(mutex_);   // accepted, not counted yet
  Members returned_ STRATA_GUARDED_BY(mutex_);  // served
  Queue ready_ STRATA_GUARDED_BY(mutex_), health_ STRATA_GUARDED_BY(mutex_);
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;  // the queues get nothing more
  std::vector<std::jthread> threads_;
  std::jthread poller_;  // last: it uses what is above
};

}  // namespace strata::detail
