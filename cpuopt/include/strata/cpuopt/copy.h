#pragma once

#include <cstddef>

namespace strata::cpuopt {

/// Copies data that will not be read soon: `to` is written with non-temporal stores, which bypass the caches,
/// if the CPU has them. The ranges must not overlap.
void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace strata::cpuopt
