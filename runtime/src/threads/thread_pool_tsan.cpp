// oneTBB is not instrumented for ThreadSanitizer, which would report countless false races in it.
#include "threads/thread_pools.h"

namespace strata::detail {

Result<std::unique_ptr<ThreadPool>> create_stealing_pool(const CoreShare& share) {
  return create_numa_thread_pool({.nodes = {{0, share.threads(), {}}}, .why = {}});
}

}  // namespace strata::detail
