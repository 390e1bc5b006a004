// The two kinds of pool behind ThreadPool::create().
#pragma once

#include <memory>

#include <strata/runtime/thread_pool.h>

namespace strata::detail {

inline constexpr int kMaxThreads = 1024;
inline constexpr std::size_t kMaxNumaNodes = 64;

/// Threads that steal from each other, for a share that is not bound: oneTBB. Under ThreadSanitizer, where
/// oneTBB cannot run, a node pool.
std::unique_ptr<ThreadPool> create_stealing_pool(const CoreShare& share);

/// Threads of our own by node, for a share that is bound. Errors: as ThreadPool::create.
Result<std::unique_ptr<ThreadPool>> create_numa_thread_pool(const CoreShare& share);

}  // namespace strata::detail
