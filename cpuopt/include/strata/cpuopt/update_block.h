#pragma once

#include <cstdint>

#include <strata/cpuopt/master.h>
#include <strata/cpuopt/moments.h>
#include <strata/cpuopt/optimizer.h>
#include <strata/runtime/dtype.h>

namespace strata::cpuopt {

/// Parameters, optimizer states and gradient of a range of one tensor, as stored in memory. The range begins
/// at a multiple of kNormPartialElems in its tensor; addresses have any alignment. Moments that the optimizer
/// does not have are null.
struct UpdateBlock {
  MasterLayout layout = MasterLayout::f32;
  StateFormat states = StateFormat::fp32;
  DType grad = DType::f32;  ///< the dtype of `g`: f32, bf16 or f16
  void* param = nullptr;
  void* master = nullptr;
  Moment m{}, v{};
  const void* g = nullptr;
  float* ema = nullptr;     ///< the moving average of the masters; null without one
  std::uint32_t index = 0;  ///< low 32 bits of the first element's index in its tensor

  /// The block from element `offset` on.
  UpdateBlock at(std::int64_t offset) const noexcept;
};

/// Constants and rule of one step: prepared once and passed to every thread.
struct UpdateStep {
  UpdateScalars<float> scalars{};
  std::uint8_t rule = 0;          ///< its position in UpdateRules
  MomentSet moments{true, true};  ///< the moments that the rule has
  float ema_weight = 0;           ///< 1 - ema_decay
};
UpdateStep make_update_step(const OptimizerParams& params) noexcept;

}  // namespace strata::cpuopt
