#pragma once

#include <strata/chunk/residency_table.h>
#include <strata/chunk/slot_pool.h>
#include <strata/runtime/status.h>

namespace strata {

/// Checks the invariants of both, and that every copy has its slot (README.md lists them); for tests.
Status audit(const ResidencyTable& residency, const SlotPool& slots);

}  // namespace strata
