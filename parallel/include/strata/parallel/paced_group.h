#pragma once

#include <memory>

#include <strata/parallel/process_group.h>
#include <strata/parallel/simulated_group.h>

namespace strata {

/// A group whose collectives take as long as those of a network with `rate`, besides the time that `group`
/// needs to move the data: so communication can be as slow as a test or a benchmark wants it. `backend`,
/// which outlives it, is the one whose streams the collectives are queued on; it must pace compute
/// (HostBackendOptions::paced_compute), else `rate` has no effect.
std::unique_ptr<ProcessGroup> create_paced_group(std::unique_ptr<ProcessGroup> group, Backend& backend,
                                                 const NetworkRate& rate);

}  // namespace strata
