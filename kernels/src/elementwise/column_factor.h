#pragma once

#include <strata/kernels/values/column_scales.h>
#include <strata/simd/math/host_device.h>

namespace strata::kernels::detail {

/// The scales as a kernel on CUDA takes them.
struct PartFactors {
  int parts;
  std::int32_t widths[ColumnScales::kMost];
  float factors[ColumnScales::kMost];

  explicit PartFactors(const ColumnScales& s) : parts(s.parts) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(ColumnScales::kMost); ++i) {
      widths[i] = s.widths[i];
      factors[i] = s.factors[i];
    }
  }
  /// The factor of a column.
  STRATA_HD float of(std::int64_t column) const {
    int i = 0;
    for (std::int64_t end = widths[0]; i + 1 < parts && column >= end; end += widths[i]) ++i;
    return factors[i];
  }
};

}  // namespace strata::kernels::detail
