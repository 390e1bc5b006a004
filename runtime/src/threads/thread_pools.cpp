#include "threads/thread_pools.h"

#include <string>
#include <vector>

#include <unistd.h>

#include <strata/runtime/str.h>

namespace strata {

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  if (threads < 0 || threads > detail::kMaxThreads)
    return Status::error(Code::invalid,
                         str("cpu.threads is ", threads, "; it must be from 0 (this process's share) to ",
                             detail::kMaxThreads));
  if (threads > 0) return detail::create_stealing_pool({.nodes = {{0, threads, {}}}, .why = {}});
  std::vector<std::string> environment;
  for (char** word = environ; word != nullptr && *word != nullptr; ++word) environment.emplace_back(*word);
  STRATA_TRY_ASSIGN(const CoreShare share, process_core_share(environment));
  return create(share);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(const CoreShare& share) {
  const int threads = share.threads();
  if (threads < 1 || threads > detail::kMaxThreads || share.nodes.size() > detail::kMaxNumaNodes)
    return Status::error(Code::invalid, str("a share of ", threads, " threads on ", share.nodes.size(),
                                            " NUMA nodes; a pool has 1 to ", detail::kMaxThreads,
                                            " threads on 1 to ", detail::kMaxNumaNodes, " nodes"));
  if (share.bound) return detail::create_numa_thread_pool(share);
  return detail::create_stealing_pool(share);
}

}  // namespace strata
