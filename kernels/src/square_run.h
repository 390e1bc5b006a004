#pragma once

#include <cstdint>

namespace strata::kernels::detail {

/// Elements of a row whose squares are summed in f32; the sums are added in f64.
inline constexpr std::int64_t kSquareRun = 1024;

}  // namespace strata::kernels::detail
