#include <strata/dispatch/cuda/emulation/half_warp.h>
#include <strata/dispatch/op.h>
#include <strata/kernels/subspace.h>

#include "adapters/lora_parts_check.h"
#include "subspace/gradient_squares.h"
#include "subspace/row_squares.h"

namespace strata::kernels {
STRATA_OP(gradient_outside, GradientOutsideArgs);

void gradient_outside_host(const GradientOutsideArgs& a, ThreadPool& pool) {
  (void)detail::for_each_square_rows(a, [&](const detail::SquareRows& rows, DType dtype) {
    detail::sum_row_squares(rows, dtype, pool);
    return Status::ok();
  });
  const detail::OutsideSums sums =
      detail::outside_sums(a.parts, dispatch::row_length(a.g), a.side, a.workspace.data);
  detail::WriteOutside{sums, a.rho.as<float>()}(dispatch::EmulatedHalfWarp{}, 0);
}

std::size_t gradient_outside_workspace_bytes(const LoraParts& parts, std::int64_t columns,
                                             SubspaceSide side) noexcept {
  return detail::outside_sums(parts, columns, side, nullptr).bytes();
}

Status gradient_outside_async(Backend& backend, Stream& stream, const GradientOutsideArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.g), columns = dispatch::row_length(a.g);
  const detail::PartSums sums = detail::sums_of(a.parts);
  dispatch::Check check("gradient_outside", "g", a.g);
  detail::check_parts(check, a.parts, rows);
  detail::check_stored(check, "r", a.r, a.side == SubspaceSide::right ? sums.elems : sums.ranks * columns);
  check.shape("rho", a.rho, DType::f32, {1})
      .workspace(a.workspace, gradient_outside_workspace_bytes(a.parts, columns, a.side));
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, gradient_outside_op, a, {a.g, a.r}, {a.rho}, a.workspace);
}

}  // namespace strata::kernels
