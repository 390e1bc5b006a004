#pragma once

#include <cstdint>

#include <strata/cpuopt/isa_table.h>
#include <strata/cpuopt/master.h>
#include <strata/cpuopt/math/rules.h>
#include <strata/cpuopt/prefetch.h>

namespace strata::cpuopt::detail {

/// What an update kernel reads and writes; moments in f32.
struct UpdateSpans {
  void* param;
  void* master;
  float* m;
  float* v;
  const void* g;
};
/// The rules of math/rules.h, in the order of the table's rows.
enum class Rule : std::uint8_t { adamw, adam, lion, adagrad, sgd, momentum, nesterov, lamb_moments };
inline constexpr std::size_t kRules = 8;

/// One kernel per entry; each instruction set has one table.
struct UpdateTable {
  using Update = void (*)(const UpdateScalars<float>& s, const UpdateSpans& spans, std::int64_t n);
  /// By rule, by layout, and by gradient: f32, or of 16 bits as the layout's parameter.
  Update update[kRules][kMasterLayouts][2];
  /// Where all spans are f32: by rule, and by what is asked for ahead. With none it is that of the table
  /// above.
  Update in_f32[kRules][kPrefetches];
  /// into = lamb's direction; param and moments are read.
  void (*direction[kMasterLayouts])(const UpdateScalars<float>& s, const UpdateSpans& spans, float* into,
                                    std::int64_t n);
  /// The master -= rate * along.
  void (*step_along[kMasterLayouts])(float rate, const float* along, void* param, void* master,
                                     std::int64_t n);
};

}  // namespace strata::cpuopt::detail

namespace strata::cpuopt {
STRATA_DECLARE_ISA_TABLE(detail::UpdateTable, update_table)
}  // namespace strata::cpuopt
