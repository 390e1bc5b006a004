#pragma once

#include <string>

#include <strata/kernels/attention.h>
#include <strata/runtime/status.h>

#include "cuda/launch.h"

namespace strata::kernels::detail {

/// Slopes by head: computed once a launch, for alibi_slope() is the host's.
struct Slopes {
  static constexpr int kMostHeads = 256;
  float of[kMostHeads];
  __device__ float operator()(std::int64_t head) const { return of[head]; }
};

/// Zeros without alibi. Errors: `unsupported` for more heads than there is room for.
inline Status slopes_of(const char* op, std::int64_t heads, bool alibi, Slopes& slopes) {
  if (heads > Slopes::kMostHeads)
    return Status::error(Code::unsupported, std::string(op) + ": " + std::to_string(heads) +
                                                " heads; on CUDA at most " +
                                                std::to_string(Slopes::kMostHeads));
  for (std::int64_t head = 0; head < heads; ++head) slopes.of[head] = alibi ? alibi_slope(head, heads) : 0.0f;
  return Status::ok();
}

}  // namespace strata::kernels::detail
