#pragma once

#include <cstdint>
#include <memory>

#include <strata/runtime/status.h>

namespace strata {

/// The one pool of compute threads. Work is cut by the caller into items whose results do not depend on which
/// thread runs them, so the number of threads never changes a bit. Thread-safe; calls may nest.
class ThreadPool {
 public:
  /// `threads` >= 1, or 0 for every core this process may use. Errors: `invalid` below 0 or above 1024.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);
  virtual ~ThreadPool() = default;

  virtual int threads() const noexcept = 0;

  /// Calls `body(i)` once for each i in [0, n), in any order on any of the threads, and returns when all are
  /// done. The caller's thread takes part. `body` must not throw. Allocates nothing of ours.
  template <class Body>
  void parallel_for(std::int64_t n, const Body& body) {
    run(
        n, [](const void* context, std::int64_t i) { (*static_cast<const Body*>(context))(i); }, &body);
  }

 protected:
  using Function = void (*)(const void* context, std::int64_t i);
  virtual void run(std::int64_t n, Function function, const void* context) = 0;
};

}  // namespace strata
