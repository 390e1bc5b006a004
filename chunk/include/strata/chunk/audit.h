#pragma once

#include <strata/chunk/residency_table.h>
#include <strata/chunk/slot_pool.h>
#include <strata/runtime/status.h>

namespace strata {

/// Checks that residency and slots agree: every copy has its slot, and at most one tier is dirty. For tests.
Status audit(const ResidencyTable& residency, const SlotPool& slots);

}  // namespace strata
