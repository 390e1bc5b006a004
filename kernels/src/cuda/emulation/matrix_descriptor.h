#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention/warpgroup/wgmma_instr.h"

namespace strata::kernels::detail {

/// The descriptor of an operand in memory of the host (attention/warpgroup/wgmma.h), for tests.
template <class T>
MatrixDescriptor make_descriptor(const T* at, int leading_byte_offset, int stride_byte_offset) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return {descriptor_bits(static_cast<std::uint32_t>(address % MatrixDescriptor::kWindow),
                          leading_byte_offset, stride_byte_offset),
          reinterpret_cast<const std::byte*>(address - address % MatrixDescriptor::kWindow)};
}

}  // namespace strata::kernels::detail
