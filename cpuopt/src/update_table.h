#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>
#include <strata/cpuopt/master.h>
#include <strata/cpuopt/math/rules.h>
#include <strata/cpuopt/prefetch_spans.h>

namespace strata::cpuopt::detail {

/// The memory that an update kernel reads and writes; the moments are f32.
struct UpdateSpans {
  void* param;
  void* master;
  float* m;
  float* v;
  const void* g;
};

/// The update kernels of one instruction set.
struct UpdateTable {
  using Update = void (*)(const UpdateScalars<float>& s, const UpdateSpans& spans, std::int64_t n);
  /// Indexed by rule (its position in UpdateRules), by layout and by the gradient's dtype: 0 for f32, 1 for
  /// the 16-bit dtype of the layout's parameter.
  Update update[UpdateRules::kSize][kMasterLayouts][2];
  /// For blocks whose spans are all f32: indexed by rule and by Prefetch. The kernel of Prefetch::none is
  /// also in the table above.
  Update in_f32[UpdateRules::kSize][kPrefetches];
  /// Writes lamb's direction to `into`; reads the master and the moments.
  void (*direction[kMasterLayouts])(const UpdateScalars<float>& s, const UpdateSpans& spans, float* into,
                                    std::int64_t n);
  /// master -= rate * along.
  void (*step_along[kMasterLayouts])(float rate, const float* along, void* param, void* master,
                                     std::int64_t n);
  /// moved_ema() of every element.
  void (*ema[kMasterLayouts])(float weight, void* param, void* master, float* ema, std::int64_t n);
};

}  // namespace strata::cpuopt::detail

namespace strata::cpuopt {
STRATA_DECLARE_ISA_TABLE(detail::UpdateTable, update_table)
}  // namespace strata::cpuopt
