#pragma once

#include <strata/runtime/status.h>

namespace strata::detail {

/// Counts the usable GPUs. Any failure counts as having no GPU: no driver, a driver that is too old, no
/// visible GPU, a broken GPU. Errors: `unsupported`, with CUDA's reason.
Status count_gpus(int& n);

/// Checks that GPU `device` exists. Errors: `unsupported`.
Status check_gpu(int device);

/// The NUMA node of the GPU's PCI slot; kAllNumaNodes if the system does not report it.
int numa_node_of_gpu(int device);

}  // namespace strata::detail
