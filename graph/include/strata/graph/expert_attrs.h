#pragma once

#include <cstdint>

#include <strata/kernels/quantized_matrix.h>
#include <strata/kernels/values/expert_rules.h>
#include <strata/runtime/dtype.h>

// The attributes of the ops of experts; op_list.h states which op has which.

namespace strata {

struct RouterAttrs {
  kernels::RouterRule rule = {};
  std::int32_t k = 1;           ///< experts of a token
  DType gradient = DType::f32;  ///< the logits' gradient has the dtype of what they are computed from
  friend bool operator==(const RouterAttrs&, const RouterAttrs&) = default;
};
struct RouterSumsAttrs {
  DType gradient = DType::f32;  ///< the dtype of dlogits, as in RouterAttrs
  friend bool operator==(const RouterSumsAttrs&, const RouterSumsAttrs&) = default;
};
struct RouterLossAttrs {
  std::int64_t rows = 1;  ///< the tokens of all layers
  float aux_coef = 0, z_coef = 0;
  friend bool operator==(const RouterLossAttrs&, const RouterLossAttrs&) = default;
};
struct RouteRowsAttrs {
  std::int32_t experts = 1;  ///< the number in the layer
  friend bool operator==(const RouteRowsAttrs&, const RouteRowsAttrs&) = default;
};
struct ChoiceAttrs {
  std::int32_t k = 1;  ///< rows of a token
  friend bool operator==(const ChoiceAttrs&, const ChoiceAttrs&) = default;
};
struct ExpertGateAttrs {
  kernels::ExpertGate gate = {};
  friend bool operator==(const ExpertGateAttrs&, const ExpertGateAttrs&) = default;
};

/// The experts whose matrices an op has: [first, first + B) of all, where the weight is [B, N, K].
struct ExpertBlockAttrs {
  std::int64_t first = 0;
  friend bool operator==(const ExpertBlockAttrs&, const ExpertBlockAttrs&) = default;
};
/// The same of products with quantized matrices: one for each of the experts from `first` on.
struct ExpertLinearQuantizedAttrs {
  kernels::QuantizedMatrix matrix = {};
  std::int64_t first = 0;
  friend bool operator==(const ExpertLinearQuantizedAttrs&, const ExpertLinearQuantizedAttrs&) = default;
};

}  // namespace strata
