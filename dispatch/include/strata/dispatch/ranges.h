#pragma once

#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::dispatch {

/// Calls body(first, count) in parallel for fixed ranges of `per_item` elements of [0, total).
template <class Body>
void parallel_for_ranges(ThreadPool& pool, std::int64_t total, std::int64_t per_item, const Body& body) {
  pool.parallel_for(ceil_div(total, per_item), [&](std::int64_t item) {
    const std::int64_t first = item * per_item;
    body(first, total - first < per_item ? total - first : per_item);
  });
}

}  // namespace strata::dispatch
