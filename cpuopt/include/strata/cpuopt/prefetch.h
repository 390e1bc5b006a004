#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata::cpuopt {

/// Which spans of a step in f32 (masters that are their parameters, moments and gradients in f32) are asked
/// for ahead of their use. CPUs differ in what is fastest: some fetch four spans by themselves as fast as
/// memory gives them, others gain a tenth by being told. Bits are the same.
enum class Prefetch : std::uint8_t { none, moments, all };
inline constexpr std::size_t kPrefetches = 3;
std::string_view to_string(Prefetch prefetch) noexcept;

/// Nanoseconds a parameter that AdamW takes with each, on the calling thread, with nothing in its caches:
/// about ten milliseconds, 2 MiB of memory for as long. Nothing where there is no memory, or no way to empty
/// caches.
std::optional<std::array<double, kPrefetches>> measure_prefetch() noexcept;

/// What steps of this process run with: the last use_prefetch(), else the fastest by measure_prefetch(),
/// which the first call measures; `none` where another gains less than a thirtieth. Thread-safe.
Prefetch active_prefetch() noexcept;
/// From the next step on; nothing: what was measured. Thread-safe.
void use_prefetch(std::optional<Prefetch> prefetch) noexcept;

}  // namespace strata::cpuopt
