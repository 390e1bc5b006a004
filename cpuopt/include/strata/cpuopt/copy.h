#pragma once

#include <cstddef>

namespace strata::cpuopt {

/// Copies what will not be read soon: `to` is written past the caches, where the CPU can. Ranges do not
/// overlap.
void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace strata::cpuopt
