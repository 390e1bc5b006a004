// oneTBB is not built for ThreadSanitizer, which would drown in false reports.
#include "thread_pools.h"

#include <strata/runtime/status.h>

namespace strata::detail {

std::unique_ptr<ThreadPool> create_stealing_pool(const CoreShare& share) {
  return must(
      create_numa_thread_pool({.nodes = {{0, share.threads(), {}}}, .why = {}}));  // unbound, it cannot fail
}

}  // namespace strata::detail
