#pragma once

#include <array>

#include <strata/parallel/collective.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::detail {

inline constexpr int kMaxThreadRanks = 16;  // HostCall declares at most 20 memory accesses

/// The operands of a reduction of n_parts parts, in the order in which they are added. `into` may be one of
/// the parts.
struct ReduceArgs {
  std::array<const std::byte*, kMaxThreadRanks> parts;
  int n_parts;
  std::byte* into;
  std::size_t bytes;
  DType dtype;
  Reduction reduction;
};

/// 16-bit values are added in f32 and rounded once, to nearest even. `max` of a NaN and a number is NaN.
void reduce(const ReduceArgs& args, ThreadPool& pool);

}  // namespace strata::detail
