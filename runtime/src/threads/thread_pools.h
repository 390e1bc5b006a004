// The two thread pool implementations behind ThreadPool::create().
#pragma once

#include <memory>

#include <strata/runtime/threads/thread_pool.h>

namespace strata::detail {

inline constexpr int kMaxThreads = 1024;
inline constexpr std::size_t kMaxNumaNodes = 64;

/// Work-stealing threads for a share that is not bound: oneTBB or, under ThreadSanitizer, with which oneTBB
/// cannot be used, an unbound NUMA thread pool. Errors: `out_of_memory` in a process in which oneTBB could
/// not start.
Result<std::unique_ptr<ThreadPool>> create_stealing_pool(const CoreShare& share);

/// Threads grouped by NUMA node, for a bound share. Errors: those of ThreadPool::create.
Result<std::unique_ptr<ThreadPool>> create_numa_thread_pool(const CoreShare& share);

}  // namespace strata::detail
