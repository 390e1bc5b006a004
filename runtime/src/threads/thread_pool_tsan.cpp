// oneTBB is not instrumented for ThreadSanitizer, which would report countless false races in it.
#include "threads/thread_pools.h"

#include <strata/runtime/status.h>

namespace strata::detail {

std::unique_ptr<ThreadPool> create_stealing_pool(const CoreShare& share) {
  return must(
      create_numa_thread_pool({.nodes = {{0, share.threads(), {}}}, .why = {}}));  // unbound, it cannot fail
}

}  // namespace strata::detail
