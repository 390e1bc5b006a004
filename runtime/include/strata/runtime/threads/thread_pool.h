#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <strata/runtime/threads/core_share.h>
#include <strata/runtime/status.h>

namespace strata {

/// The process's pool of compute threads. Callers split work into items whose results do not depend on the
/// thread that runs them, so results are bitwise identical for any number of threads. Thread-safe; calls may
/// nest.
class ThreadPool {
 public:
  /// Creates `threads` >= 1 unbound threads or, for 0, the threads of this process's share
  /// (process_core_share with the environment of the process). Errors: `invalid` below 0 or above 1024; those
  /// of the share.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);
  /// Creates the threads of a share, bound to its cores if the share is bound. The caller of parallel_for
  /// counts as one of them and is not bound. Errors: `invalid` above 1024 threads or 64 nodes; `unsupported`
  /// if the system refuses to bind a thread.
  static Result<std::unique_ptr<ThreadPool>> create(const CoreShare& share);
  virtual ~ThreadPool() = default;

  virtual int threads() const noexcept = 0;
  /// The operating system's numbers of the NUMA nodes that the workers are bound to; empty if they are not
  /// bound.
  virtual std::span<const int> nodes() const noexcept { return {}; }

  /// Calls `body(i)` once for each i in [0, n), in any order and on any of the threads, and returns when all
  /// calls are done. The calling thread takes part. `body` must not throw. strata's own code allocates
  /// nothing here. Each node owns a contiguous part of [0, n), in proportion to its threads, and its threads
  /// take items from it one by one; a node that has finished its part steals items from the others.
  template <class Body>
  void parallel_for(std::int64_t n, const Body& body) {
    run(n, call<Body>, &body, Stealing::across_nodes);
  }

  /// Like parallel_for, but each item runs on a thread of the node that owns it. Memory first touched in such
  /// a loop is therefore local to the threads that later process the same part of the range. With several
  /// nodes the calling thread only waits. A nested call behaves like parallel_for.
  template <class Body>
  void parallel_for_numa_local(std::int64_t n, const Body& body) {
    run(n, call<Body>, &body, Stealing::within_node);
  }

 protected:
  using Function = void (*)(const void* context, std::int64_t i);
  enum class Stealing : std::uint8_t { across_nodes, within_node };
  virtual void run(std::int64_t n, Function function, const void* context, Stealing stealing) = 0;

 private:
  template <class Body>
  static void call(const void* context, std::int64_t i) {
    (*static_cast<const Body*>(context))(i);
  }
};

}  // namespace strata
