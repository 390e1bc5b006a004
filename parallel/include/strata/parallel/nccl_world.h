#pragma once

#include <memory>
#include <span>
#include <string>

#include <strata/parallel/nccl_group.h>
#include <strata/parallel/world.h>
#include <strata/runtime/status.h>

namespace strata {

/// The world of the processes that torchrun has started, one rank and one GPU each, without MPI. Reads RANK,
/// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT from "NAME=value" strings. Every process calls it,
/// once, and waits until all have.
///
/// The ranks find each other through NCCL alone: rank 0 listens at MASTER_ADDR and the port after
/// MASTER_PORT, where torchrun listens itself, or at NCCL_COMM_ID if it is set. If it is not, this sets it in
/// the process, so call it before there are threads that read the environment. all_gather() goes over NCCL,
/// through GPU LOCAL_RANK, and create_group() is for backends on that GPU only.
///
/// Whether a rank has ended is known only if NCCL notices it, which it does over a network; otherwise others
/// wait for the timeout, and do not learn which rank it was; World::set_watch() does nothing. Errors:
/// `invalid`, naming the variable; those of create_nccl_group(), but each rank knows only its own, and the
/// others `lost_peer` after the timeout.
Result<std::unique_ptr<World>> open_nccl_world(std::span<const std::string> environment,
                                               const NcclOptions& options = {});

}  // namespace strata
