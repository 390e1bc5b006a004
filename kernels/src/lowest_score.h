#pragma once

namespace strata::kernels::detail {

/// The lowest finite f32: where a maximum over scores begins, so that a row without any score has no Inf or
/// NaN.
inline constexpr float kLowestScore = -3.402823466e38f;

}  // namespace strata::kernels::detail
