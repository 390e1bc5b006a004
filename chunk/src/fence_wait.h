#pragma once

#include <algorithm>

#include <strata/chunk/mover.h>
#include <strata/runtime/backend/backend.h>

namespace strata::detail {

/// Makes work queued on `stream` from now on start after the events of `fence`. The caller does not wait.
inline Status wait_on_async(const Fence& fence, Stream& stream, Backend& backend) {
  for (const Event& event : fence.events)
    if (event.stream >= 0 && event.stream != stream.id()) STRATA_TRY(backend.wait_on_async(event, stream));
  return Status::ok();
}

/// Blocks the caller until the events of `fence` have completed.
inline Status wait_on_host(const Fence& fence, Backend& backend) {
  for (const Event& event : fence.events)
    if (event.stream >= 0) STRATA_TRY(backend.wait(event));
  return Status::ok();
}

/// Whether the events of `fence` have completed. The caller does not wait.
inline bool is_complete(const Fence& fence, Backend& backend) noexcept {
  return std::all_of(fence.events.begin(), fence.events.end(),
                     [&](const Event& event) { return event.stream < 0 || backend.is_complete(event); });
}

}  // namespace strata::detail
