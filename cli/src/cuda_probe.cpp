#include <strata/runtime/cuda_backend.h>

#include "doctor.h"

namespace strata::cli {

// The runtime knows whether this build has CUDA and what the driver says; training takes a GPU where it is
// asked to.
CudaProbe cuda_probe() {
  return {cuda_available(), cuda_status(),
          "a build with CUDA (cmake --preset cuda) on a machine with a GPU and its driver"};
}

}  // namespace strata::cli
