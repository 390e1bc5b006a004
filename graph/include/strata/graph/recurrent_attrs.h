#pragma once

#include <cstdint>

#include <strata/kernels/values/delta_heads.h>
#include <strata/kernels/values/scan_heads.h>

// The attributes of the recurrent ops; op_list.h states which op has which.

namespace strata {

struct CausalConvAttrs {
  std::int32_t seq = 0;  ///< rows of a sequence; 0 for rows that name their sequences
  bool silu = false;     ///< the result goes through it
  friend bool operator==(const CausalConvAttrs&, const CausalConvAttrs&) = default;
};
struct DeltaRuleAttrs {
  kernels::DeltaHeads heads = {};
  friend bool operator==(const DeltaRuleAttrs&, const DeltaRuleAttrs&) = default;
};
struct ScanGatesAttrs {
  kernels::StepLimits limits = {};
  friend bool operator==(const ScanGatesAttrs&, const ScanGatesAttrs&) = default;
};
struct StateScanAttrs {
  kernels::ScanHeads heads = {};
  friend bool operator==(const StateScanAttrs&, const StateScanAttrs&) = default;
};
struct GatedRmsnormAttrs {
  float eps = 0;
  std::int32_t head_dim = 0;  ///< elements of a head; 0: of the weight
  bool gate_first = false;    ///< what is normalized is x times the gate
  friend bool operator==(const GatedRmsnormAttrs&, const GatedRmsnormAttrs&) = default;
};

}  // namespace strata
