#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <httplib.h>

#include <strata/runtime/status.h>
#include <strata/runtime/thread_annotations.h>

namespace strata::detail {

/// The threads that serve connections, one connection each at a time, as httplib asks for them. A connection
/// that finds no thread waits; while kWaiting of them do, no more are accepted.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  /// Errors: `out_of_memory` with the number of threads that the system has allowed.
  static Result<std::unique_ptr<ConnectionThreads>> create(std::size_t n);
  ~ConnectionThreads() override { ConnectionThreads::shutdown(); }
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;

  void enqueue(std::function<void()> serve) override;
  /// Serves the connections that wait, and joins the threads.
  void shutdown() override;

 private:
  ConnectionThreads() = default;
  void run() noexcept;

  static constexpr std::size_t kWaiting = 1024;

  Mutex mutex_;
  Condition changed_, room_;
  std::deque<std::function<void()>> waiting_ STRATA_GUARDED_BY(mutex_);
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // last: they use what is above
};

}  // namespace strata::detail
