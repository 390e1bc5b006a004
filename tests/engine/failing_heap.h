#pragma once

#include <cstdint>

namespace strata::test {

/// Number of allocations made by this thread.
extern thread_local std::uint64_t heap_allocations;
/// Number of the allocation that fails, counted from 1; 0: none.
extern thread_local std::uint64_t heap_fails_at;

}  // namespace strata::test
