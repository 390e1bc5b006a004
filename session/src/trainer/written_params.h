#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Sets the masters of the elements from `offset` on that differ, in `dtype`, from those at `written`: what a
/// trainer has not changed keeps the bits that only its master has.
Status take_written(const std::byte* written, DType dtype, std::int64_t offset, std::span<float> masters);

}  // namespace strata::detail
