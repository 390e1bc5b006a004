#pragma once

#include <span>
#include <vector>

#include <pthread.h>

#include <strata/runtime/status.h>

namespace strata::detail {

/// The hardware threads (the system's numbers, ascending) that the calling thread may run on; empty where the
/// system does not say. Machines of any size.
std::vector<int> affinity_mask();
/// Errors: `unsupported`, naming `cpus`, where the system refuses.
Status bind_thread(pthread_t thread, std::span<const int> cpus);

}  // namespace strata::detail
