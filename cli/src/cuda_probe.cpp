#include "doctor.h"

#include <strata/runtime/backend/cuda_backend.h>

namespace strata::cli {

// The runtime module knows whether this build has CUDA and what the driver reports. A run uses a GPU only
// with memory.backend=cuda, so a machine without one is still usable.
CudaProbe cuda_probe() {
  return {cuda_available(), cuda_status(),
          "build with CUDA (cmake --preset cuda) and run on a machine with a GPU and its driver"};
}

}  // namespace strata::cli
