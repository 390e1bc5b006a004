#pragma once

#include <cstdint>

namespace strata::test {

/// Allocations that this thread has asked for.
extern thread_local std::uint64_t heap_allocations;
/// The one of them that is refused, from 1; 0: none.
extern thread_local std::uint64_t heap_fails_at;

}  // namespace strata::test
