#pragma once

#include <strata/runtime/status.h>

namespace strata::detail {

/// How many GPUs there are to use. Any failure means that there is none: no driver, an old one, none visible,
/// one that is broken. Errors: `unsupported`, with CUDA's reason.
Status count_gpus(int& n);

/// Whether there is a GPU of that number. Errors: `unsupported`.
Status check_gpu(int device);

/// The NUMA node the GPU's PCI slot belongs to; kAllNumaNodes where the system does not say.
int numa_node_of_gpu(int device);

}  // namespace strata::detail
