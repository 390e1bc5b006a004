#pragma once

#include <cstdint>

#include <strata/graph/gemm_attrs.h>
#include <strata/kernels/align/log_prob_scaling.h>
#include <strata/kernels/align/loss_options.h>

// The attributes of losses and of what they are made of.

namespace strata {

struct LinearCrossEntropyAttrs {
  float softcap = 0;
  bool no_dx = false, no_dw = false;  ///< backward only: that gradient is not needed, and empty
  std::int64_t first_row = 0;         ///< the first row of the vocabulary, where the weight is a part of it
  GemmAttrs gemm = {};
  friend bool operator==(const LinearCrossEntropyAttrs&, const LinearCrossEntropyAttrs&) = default;
};
/// Attributes of merge_losses: the derivative of linear_cross_entropy on a part of the vocabulary needs them.
struct MergeLossesAttrs {
  float softcap = 0;
  std::int64_t first_row = 0;
  friend bool operator==(const MergeLossesAttrs&, const MergeLossesAttrs&) = default;
};
struct LinearLogProbsAttrs {
  kernels::LogProbScaling scaling = {};
  bool entropy = false;               ///< compute entropies
  bool no_dx = false, no_dw = false;  ///< backward only: that gradient is not needed, and empty
  GemmAttrs gemm = {};
  friend bool operator==(const LinearLogProbsAttrs&, const LinearLogProbsAttrs&) = default;
};
struct SegmentSumAttrs {
  std::int32_t segments = 0;
  bool mean = false;
  friend bool operator==(const SegmentSumAttrs&, const SegmentSumAttrs&) = default;
};
using PolicyLossAttrs = kernels::PolicyLossOptions;
using ValueLossAttrs = kernels::ValueLossOptions;
using PairLossAttrs = kernels::PairLossOptions;

}  // namespace strata
