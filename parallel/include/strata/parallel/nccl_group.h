#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <strata/parallel/process_group.h>
#include <strata/parallel/world.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/units.h>

namespace strata {

struct NcclOptions {
  /// How long a rank waits for the others, in a call or in queued work, before it gives up. It includes the
  /// work that is in a stream before a collective.
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
  /// The piece size of reductions: the device memory of a group holds one piece of every other rank.
  std::size_t piece_bytes = 4 * kMiB;
  /// Returns an error if it is known by other means than NCCL that a rank has failed, which NCCL may not
  /// notice; asked every 20 ms while ranks join the group, and then by the thread that watches it. May be
  /// empty.
  std::function<Status()> peer_failure = {};
  std::string file = "libnccl.so.2";  ///< a path, or a name that the dynamic linker looks for
};

/// Whether this build can move the memory of GPUs between ranks, if the machine has NCCL.
bool built_with_nccl() noexcept;

/// The group of all ranks of `world` for work on `backend`, which computes on a GPU that no other rank uses.
/// `world` tells the ranks how to find each other and may end afterwards, though ranks that have ended it are
/// no longer watched by others; `backend` must outlive the group. Every rank calls it, and waits until all
/// have. Loads NCCL when it is first called.
///
/// A collective is kernels of NCCL on its stream, reductions are also kernels of ours, and the end of each is
/// a host call, by which an error of the group becomes one of the stream. queue() waits until NCCL has
/// started the collective, which it does not before the other ranks have come to their first one. One thread
/// for each group watches it.
///
/// A rank that fails, or waits longer than the timeout, ends what the group has queued, and its group and
/// streams return `lost_peer` from then on; a call that fails has nothing left in its stream. Destroying a
/// group ends its queued work, too, and waits for that.
///
/// Errors, the same on all ranks: `unsupported`, naming what is missing: NCCL when strata was built or on
/// this machine, its version, a GPU for each rank. `lost_peer` if a rank has failed meanwhile.
Result<std::unique_ptr<ProcessGroup>> create_nccl_group(World& world, Backend& backend,
                                                        const NcclOptions& options = {});

}  // namespace strata
