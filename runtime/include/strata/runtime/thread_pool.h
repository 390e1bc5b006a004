#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <strata/runtime/core_share.h>
#include <strata/runtime/status.h>

namespace strata {

/// The one pool of compute threads. Work is cut by the caller into items whose results do not depend on which
/// thread runs them, so the number of threads never changes a bit. Thread-safe; calls may nest.
class ThreadPool {
 public:
  /// `threads` >= 1 that the system places, or 0 for this process's share (process_core_share, with the
  /// environment it was started with). Errors: `invalid` below 0 or above 1024, and those of the share.
  static Result<std::unique_ptr<ThreadPool>> create(int threads);
  /// The threads of a share, kept on its cores where it is bound; the caller of parallel_for counts as one
  /// and stays where it is. Errors: `invalid` above 1024 threads or 64 nodes; `unsupported` where the system
  /// refuses to bind a thread.
  static Result<std::unique_ptr<ThreadPool>> create(const CoreShare& share);
  virtual ~ThreadPool() = default;

  virtual int threads() const noexcept = 0;
  /// The NUMA nodes (the system's numbers) that the workers are bound to; empty where they are not.
  virtual std::span<const int> nodes() const noexcept { return {}; }

  /// Calls `body(i)` once for each i in [0, n), in any order on any of the threads, and returns when all are
  /// done. The caller's thread takes part. `body` must not throw. Allocates nothing of ours. Each node has a
  /// part of [0, n), contiguous and in proportion to its threads, which they take item by item; a node that
  /// is done takes from the parts of others.
  template <class Body>
  void parallel_for(std::int64_t n, const Body& body) {
    run(n, call<Body>, &body, Stealing::across_nodes);
  }

  /// The same, but an item runs on a thread of the node whose part it is in, so that memory which is first
  /// touched here lies near the threads that work that part later. With several nodes the caller only waits.
  /// Inside another call it is a parallel_for.
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
