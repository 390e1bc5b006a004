#pragma once

#include <array>
#include <optional>
#include <string_view>

#include <strata/cpuopt/prefetch_spans.h>

namespace strata::cpuopt {

std::string_view to_string(Prefetch prefetch) noexcept;

/// Measures AdamW with each Prefetch on the calling thread with cold caches; returns nanoseconds per
/// parameter. Takes about ten milliseconds and 2 MiB of temporary memory. Returns nothing if the memory
/// cannot be allocated or the caches cannot be flushed.
std::optional<std::array<double, kPrefetches>> measure_prefetch() noexcept;

/// The Prefetch that steps of this process use: that of the last use_prefetch(), otherwise the fastest by
/// measure_prefetch(), which the first call runs; `none` if no other gains at least 3 %. Thread-safe.
Prefetch active_prefetch() noexcept;
/// Sets the Prefetch from the next step on; an empty value returns to the measured one. Thread-safe.
void use_prefetch(std::optional<Prefetch> prefetch) noexcept;

}  // namespace strata::cpuopt
