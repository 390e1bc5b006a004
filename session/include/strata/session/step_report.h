#pragma once

#include <cstdint>
#include <string>

#include <strata/runtime/trace/stall_meter.h>

namespace strata {

/// The outcome of one step. After an error only `skipped` and `skip_reason` mean anything. `speculated` and
/// `rolled_back` are added to.
struct StepReport {
  float loss = 0;        ///< mean over the step's counted targets
  double grad_norm = 0;  ///< norm of the mean gradient, before clipping
  double clip_factor = 1;
  double loss_scale = 1;              ///< the scale that the step was computed with
  std::int32_t overflow_retries = 0;  ///< how often f16 gradients overflowed before
  /// The gradient was not finite, and nothing was updated; if the step counts, not even the loss scale. Also
  /// true together with the error `diverged`.
  bool skipped = false;
  std::string skip_reason;  ///< names the tensor
  /// Set by the caller before the step; after it, those that any rank has set. At most kStepFlags bits.
  std::uint32_t flags = 0;
  std::int32_t speculated = 0;   ///< chunks updated before the norm was known
  std::int32_t rolled_back = 0;  ///< speculated chunks that were undone: the norm was clipped or not finite
  double seconds = 0;
  /// How `seconds` was spent, as far as the backend reports it. Includes the update of the previous step if
  /// it ran during this one.
  StallTimes times{};
};

}  // namespace strata
