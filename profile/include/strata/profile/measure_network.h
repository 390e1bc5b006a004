#pragma once

#include <strata/parallel/simulated_group.h>
#include <strata/parallel/world.h>
#include <strata/profile/measure_options.h>
#include <strata/runtime/status.h>

namespace strata {

/// Measures the collectives of the ranks of `world` that move most data in a step, all-gathers and
/// all-to-alls, between device buffers of the backend that runs use. Every rank calls it. Takes a few
/// seconds. Errors: those of the transport, such as `unsupported` for memory that it cannot exchange.
Result<NetworkRate> measure_network(const MeasureOptions& options, World& world);

}  // namespace strata
