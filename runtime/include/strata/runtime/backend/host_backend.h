#pragma once

#include <memory>

#include <strata/runtime/backend/backend.h>
#include <strata/runtime/backend/host_backend_options.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/status.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata {

/// Creates a complete device in host memory: capped memory, in-order streams, rate-limited links. `pool` and
/// `clock` must outlive it. Under latest_legal or `check`, new, discarded and freed memory is filled with
/// 0xFF (NaN in every float type), and freed memory stays mapped for a while, so that an access in the wrong
/// order is noticed. Under latest_legal an is_complete() that returns false first advances the event by one
/// entry, so that polling terminates. Errors: `invalid` for options that contradict each other.
Result<std::unique_ptr<Backend>> create_host_backend(const HostBackendOptions& options, ThreadPool& pool,
                                                     Clock& clock);

}  // namespace strata
