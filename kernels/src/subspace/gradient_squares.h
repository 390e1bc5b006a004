#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/kernels/subspace.h>

#include "adapters/dora_rows.h"
#include "adapters/lora_gemms.h"
#include "gemm/part_sums.h"

/// Sums of the squares of gradients, by the host and by CUDA, with the same bits.
namespace strata::kernels::detail {

/// Values that are summed as rows of `length`, of which the last may be shorter.
struct SquareRows {
  const void* values = nullptr;
  std::int64_t length = 0, total = 0;
  double* sums = nullptr;  ///< [count()]

  std::int64_t count() const noexcept { return length > 0 ? dispatch::ceil_div(total, length) : 0; }
};
inline SquareRows square_rows(const TensorView& rows, double* sums) noexcept {
  return {rows.data, dispatch::row_length(rows), rows.n_elems(), sums};
}

/// Elements of r whose squares are summed as one row.
inline constexpr std::int64_t kFlatRow = 4096;

/// Sums of gradient_outside: the number of sums of the gradient's rows, and of r's rows, which follow them.
struct OutsideSums {
  double* sums = nullptr;
  std::int64_t of_g = 0, of_r = 0;
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(of_g + of_r) * sizeof(double); }
};
inline OutsideSums outside_sums(const LoraParts& parts, std::int64_t columns, SubspaceSide side,
                                std::byte* workspace) noexcept {
  const PartSums sums = sums_of(parts);
  const std::int64_t r = side == SubspaceSide::right ? sums.elems : sums.ranks * columns;
  return {reinterpret_cast<double*>(workspace), sums.rows, dispatch::ceil_div(r, kFlatRow)};
}

/// Calls `run(rows, dtype)` for the rows of each part of g, and for those of r, until one returns an error.
template <class Run>
Status for_each_square_rows(const GradientOutsideArgs& a, const Run& run) {
  const OutsideSums space = outside_sums(a.parts, dispatch::row_length(a.g), a.side, a.workspace.data);
  std::int64_t done = 0;
  for (const LoraPart& part : a.parts.all()) {
    const std::int64_t columns = dispatch::row_length(a.g);
    STRATA_TRY(
        run(SquareRows{at(a.g, part.first_row * columns), columns, part.rows * columns, space.sums + done},
            a.g.dtype));
    done += part.rows;
  }
  return run(SquareRows{a.r.data, kFlatRow, a.r.n_elems(), space.sums + done}, a.r.dtype);
}

/// For one row of lanes.
struct WriteOutside {
  OutsideSums space;
  float* rho;
  template <class Lanes>
  STRATA_DEVICE_INLINE void operator()(const Lanes& lanes, std::int64_t) const {
    const double g = lanes.template sum<double>(space.of_g, [&](std::int64_t i) { return space.sums[i]; });
    const double r =
        lanes.template sum<double>(space.of_r, [&](std::int64_t i) { return space.sums[space.of_g + i]; });
    const double outside = g - r;
    if (lanes.is_leader()) rho[0] = static_cast<float>(outside <= 0 ? 0.0 : sqrt(outside));
  }
};

}  // namespace strata::kernels::detail
