#include <strata/runtime/thread_pool.h>

#include <string>
#include <vector>

#include <unistd.h>

#include <strata/runtime/str.h>

#include "thread_pools.h"

namespace strata {

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int threads) {
  if (threads < 0 || threads > detail::kMostThreads)
    return Status::error(Code::invalid,
                         str("cpu.threads is ", threads, "; it takes 0 (all) to ", detail::kMostThreads));
  if (threads > 0) return detail::create_stealing_pool({.nodes = {{0, threads, {}}}, .why = {}});
  std::vector<std::string> environment;
  for (char** word = environ; word != nullptr && *word != nullptr; ++word) environment.emplace_back(*word);
  STRATA_TRY_ASSIGN(const CoreShare share, share_of_this_process(environment));
  return create(share);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(const CoreShare& share) {
  const int threads = share.threads();
  if (threads < 1 || threads > detail::kMostThreads || share.nodes.size() > detail::kMostNodes)
    return Status::error(Code::invalid, str("a share of ", threads, " threads on ", share.nodes.size(),
                                            " NUMA nodes; a pool takes 1 to ", detail::kMostThreads,
                                            " threads on 1 to ", detail::kMostNodes, " nodes"));
  if (share.bound) return detail::create_node_pool(share);
  return detail::create_stealing_pool(share);
}

}  // namespace strata
