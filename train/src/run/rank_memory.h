#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/parallel/world.h>
#include <strata/runtime/status.h>
#include <strata/plan/job.h>

namespace strata {

/// Returns what every process of the run holds in RAM, listed by its first rank; ranks that are threads are
/// one process. A collective call; `world` may be null. `planned_bytes` and `data_bytes`: of this rank.
Result<std::vector<RankMemory>> gather_rank_memory(World* world, std::uint64_t planned_bytes,
                                                   std::uint64_t data_bytes);

/// As JSON.
std::string rank_memory_json(const std::vector<RankMemory>& ranks);

/// Peak resident memory of this process as the kernel reports it (VmHWM). 0 if it cannot be read.
std::uint64_t peak_resident_bytes();

}  // namespace strata
