#pragma once

#include <gtest/gtest.h>

#include <strata/runtime/memory/alloc_counter.h>

#include "engine/tiny_run.h"

namespace strata::test {

/// Expects that steps 3 to 12 of a fresh run allocate nothing on the heap and create no resource.
inline void expect_steady_steps(TinyRun& run) {
  must(run.engine->initialize(1));
  CountingBatches batches(tiny_config().vocab);
  StepReport report;
  for (int step = 1; step <= 2; ++step) must(run.engine->train_step(batches, 1e-2, report));
  const std::uint64_t resources = run.engine->resources_created(), allocations = AllocCounter::count();
  AllocCounter::set_armed(true);
  Status status;
  for (int step = 3; step <= 12 && status.is_ok(); ++step)
    status = run.engine->train_step(batches, 1e-2, report);
  AllocCounter::set_armed(false);
  must(status);
  EXPECT_EQ(AllocCounter::count(), allocations);
  EXPECT_EQ(run.engine->resources_created(), resources);
}

}  // namespace strata::test
