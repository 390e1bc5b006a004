#pragma once

#include <exception>
#include <string_view>

#include <strata/runtime/status.h>
#include <strata/runtime/str.h>

namespace strata::detail {

/// The error of a thread that the system did not start: `out_of_memory`, with the limits that may be the
/// cause.
inline Status thread_refused(std::string_view thread, const std::exception& error) {
  return Status::error(
      Code::out_of_memory,
      str("starting ", thread, ": ", error.what(),
          "; the limits are those of `ulimit -u`, of `ulimit -v` and of the cgroup's pids.max"));
}

}  // namespace strata::detail
