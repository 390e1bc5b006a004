#pragma once

#include <cstddef>
#include <span>

#include <strata/parallel/collective.h>
#include <strata/runtime/threads/thread_pool.h>

namespace strata::detail {

/// The operands of a reduction, in the order in which they are added. `into` may be one of the parts.
struct ReduceArgs {
  std::span<const std::byte* const> parts;
  std::byte* into;
  std::size_t bytes;
  DType dtype;
  Reduction reduction;
};

/// 16-bit values are added in f32 and rounded once, to nearest even. `max` of a NaN and a number is NaN.
void reduce(const ReduceArgs& args, ThreadPool& pool);

/// The first byte of the part of `rank` of data that an all_reduce divides by whole elements.
std::size_t part_begin(std::size_t bytes, DType dtype, int rank, int size) noexcept;

}  // namespace strata::detail
