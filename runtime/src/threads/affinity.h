#pragma once

#include <span>
#include <vector>

#include <pthread.h>

#include <strata/runtime/status.h>

namespace strata::detail {

/// The hardware threads (in the operating system's numbering, ascending) that the calling thread may run on;
/// empty if the system does not report them. Works for machines of any size.
std::vector<int> affinity_mask();
/// Errors: `unsupported`, naming `cpus`, if the system refuses.
Status bind_thread(pthread_t thread, std::span<const int> cpus);

}  // namespace strata::detail
