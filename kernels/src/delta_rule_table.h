#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>
#include <strata/simd/isa_table.h>

namespace strata::kernels::detail {

template <class T>
struct DeltaForwardOperands;
template <class T>
struct DeltaBackwardOperands;
template <class T>
struct DeltaCachedOperands;

/// The gated delta rule (recurrent/delta_pairs.h) for stored dtype T: what uses slot `at` of `slots`. Each
/// instruction set has one table per T, and all give the same bits.
template <class T>
struct DeltaRuleTable {
  void (*forward)(const DeltaForwardOperands<T>& a, std::int64_t at, std::int64_t slots);
  void (*backward)(const DeltaBackwardOperands<T>& a, std::int64_t at, std::int64_t slots);
  void (*cached)(const DeltaCachedOperands<T>& a, std::int64_t at, std::int64_t slots);
};

/// The table of simd::active_isa().
template <class T>
const DeltaRuleTable<T>& delta_rule_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::DeltaRuleTable<float>, delta_rule_f32)
STRATA_DECLARE_ISA_TABLE(detail::DeltaRuleTable<bf16>, delta_rule_bf16)
STRATA_DECLARE_ISA_TABLE(detail::DeltaRuleTable<f16>, delta_rule_f16)
}  // namespace strata::kernels
