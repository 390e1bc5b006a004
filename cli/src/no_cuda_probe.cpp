#include "doctor.h"

namespace strata::cli {

CudaProbe cuda_probe() { return {false, "built without CUDA; the host backend computes", "cmake --preset cuda"}; }

}  // namespace strata::cli
