#pragma once

#include <cstdint>

#include <strata/kernels/mixers/divided_columns.h>
#include <strata/simd/math/host_device.h>

namespace strata::kernels::detail {

/// Where a column of the whole is: in the first or in the second part, and in which of its columns.
struct ColumnPlace {
  bool is_second;
  std::int64_t column;
};
STRATA_HD ColumnPlace place_of(const DividedColumns& c, std::int64_t column) {
  const std::int64_t group_width = c.first + c.second, group = group_width > 0 ? column / group_width : 0;
  if (group_width == 0 || group >= c.groups) return {false, column - c.groups * c.second};
  const std::int64_t in_group = column - group * group_width;
  return in_group < c.first ? ColumnPlace{false, group * c.first + in_group}
                            : ColumnPlace{true, group * c.second + in_group - c.first};
}

}  // namespace strata::kernels::detail
