#pragma once

#include <string>

#include <strata/kernels/attention.h>
#include <strata/runtime/status.h>

#include "cuda/launch.h"

namespace strata::kernels::detail {

/// AlibiSlopes by head: computed once a launch, for alibi_slope() is the host's.
struct AlibiSlopes {
  static constexpr int kMaxHeads = 256;
  float values[kMaxHeads];
  __device__ float operator()(std::int64_t head) const { return values[head]; }
};

/// Zeros without alibi. Errors: `unsupported` for more heads than there is room for.
inline Status compute_alibi_slopes(const char* op, std::int64_t heads, bool alibi, AlibiSlopes& slopes) {
  if (heads > AlibiSlopes::kMaxHeads)
    return Status::error(Code::unsupported, std::string(op) + ": " + std::to_string(heads) +
                                                " heads; on CUDA at most " +
                                                std::to_string(AlibiSlopes::kMaxHeads));
  for (std::int64_t head = 0; head < heads; ++head)
    slopes.values[head] = alibi ? alibi_slope(head, heads) : 0.0f;
  return Status::ok();
}

}  // namespace strata::kernels::detail
