#pragma once

#include <memory>
#include <vector>

#include <strata/parallel/process_group.h>
#include <strata/runtime/backend/backend.h>

namespace strata {

/// A group whose ranks are threads of this process and share `backend`, which must outlive it: element r of
/// the result belongs to the thread of rank r. Ranks meet when they queue, and exchange events; the copies
/// and reductions are work on their streams, so the happens-before check of the host backend sees them.
/// Nothing is allocated after creation, except by split(). A rank that destroys its element has left: the
/// calls of others that wait for it, and all later ones, return `lost_peer`.
///
/// Errors: `invalid` unless 1 <= size <= 16; `unsupported` for a backend that computes on a GPU.
Result<std::vector<std::unique_ptr<ProcessGroup>>> create_thread_groups(int size, Backend& backend);

}  // namespace strata
