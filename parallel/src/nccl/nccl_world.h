#pragma once

#include <memory>

#include <strata/parallel/world.h>
#include <strata/runtime/threads/thread_pool.h>

#include "nccl/nccl_group.h"
#include "nccl/torchrun.h"

namespace strata::detail {

/// A world over NCCL alone, which uses `backend` for what its ranks tell each other. NCCL_COMM_ID is set.
Result<std::unique_ptr<World>> create_nccl_world(const TorchrunRank& rank, const NcclDevice& device,
                                                 std::unique_ptr<ThreadPool> pool,
                                                 std::unique_ptr<Backend> backend,
                                                 const NcclOptions& options);

}  // namespace strata::detail
