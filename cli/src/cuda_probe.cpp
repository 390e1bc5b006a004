#include "doctor.h"

#include <strata/profile/compute_device.h>
#include <strata/runtime/backend/cuda_device.h>
#include <strata/runtime/str.h>

namespace strata::cli {

// The runtime module knows whether this build has CUDA and what the driver reports. A run with
// memory.backend=auto uses a GPU if it can, so a machine without one is still usable.
CudaProbe cuda_probe() {
  const auto gpu = usable_gpu();
  return {gpu.has_value(),
          gpu.has_value() ? str(cuda_status(), "; runs use it unless memory.backend is host")
                          : std::string(gpu.status().message()),
          "build with CUDA (cmake --preset cuda) and run on a machine with a GPU and its driver"};
}

}  // namespace strata::cli
