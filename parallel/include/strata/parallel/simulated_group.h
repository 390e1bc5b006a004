#pragma once

#include <cstdint>
#include <memory>

#include <strata/parallel/process_group.h>
#include <strata/runtime/backend/backend.h>

namespace strata {

/// How long collectives take: latency_s + max(sent, received) / bytes_per_s, by wire_bytes().
struct NetworkRate {
  double bytes_per_s = 0;  ///< 0: they take no time
  double latency_s = 0;
};
/// The time of a collective that sends and receives `bytes`, at least 1; 0 for a rate of 0, and if nothing is
/// sent or received.
std::int64_t duration_ns(const NetworkRate& rate, const CollectiveBytes& bytes) noexcept;

/// A group whose other ranks do not exist, for dry runs and simulations: a collective moves nothing, is a
/// host call of its duration on its stream, and is checked and counted like any other. `backend` must outlive
/// it.
std::unique_ptr<ProcessGroup> create_simulated_group(int size, int rank, Backend& backend,
                                                     const NetworkRate& rate = {});

}  // namespace strata
