#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::cpuopt {

/// The spans that an all-f32 step (masters that are the parameters, moments and gradients, all f32)
/// prefetches. CPUs differ in which is fastest: the hardware prefetcher of some streams four spans at memory
/// bandwidth, others gain a tenth from software prefetches. The bits are the same.
enum class Prefetch : std::uint8_t { none, moments, all };
inline constexpr std::size_t kPrefetches = 3;

}  // namespace strata::cpuopt
