#pragma once

#include <string>

#include <strata/dispatch/cuda/launch.h>
#include <strata/kernels/attention_heads.h>
#include <strata/runtime/status.h>

namespace strata::kernels::detail {

/// The ALiBi slope of each head. The host computes them once per launch, because alibi_slope() is host code.
struct AlibiSlopes {
  static constexpr int kMaxHeads = 256;
  float values[kMaxHeads];
  __device__ float operator()(std::int64_t head) const { return values[head]; }
};

/// Fills `slopes`, with zeros if there is no ALiBi. Errors: `unsupported` for more than kMaxHeads heads.
inline Status compute_alibi_slopes(const char* op, const AttentionHeads& shape, AlibiSlopes& slopes) {
  if (shape.heads > AlibiSlopes::kMaxHeads)
    return Status::error(Code::unsupported, std::string(op) + ": " + std::to_string(shape.heads) +
                                                " heads, but the CUDA kernels support at most " +
                                                std::to_string(AlibiSlopes::kMaxHeads));
  for (std::int64_t head = 0; head < shape.heads; ++head)
    slopes.values[head] = shape.alibi ? alibi_slope(shape, head) : 0.0f;
  return Status::ok();
}

}  // namespace strata::kernels::detail
