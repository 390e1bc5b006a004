#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>
#include <strata/kernels/values/expert_rules.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

/// SIMD kernels of the gate of experts for stored dtype T, over one row of n elements. Each instruction set
/// has one table per T, and all give the same bits.
template <class T>
struct ExpertGateTable {
  /// a = weight gate(g, u), rounded once.
  void (*forward)(const ExpertGate& gate, const T* g, const T* u, float weight, T* a, std::int64_t n);
  /// Writes dg and du, which may be g and u; returns the gradient of the weight.
  float (*backward)(const ExpertGate& gate, const T* g, const T* u, float weight, const T* da, T* dg, T* du,
                    std::int64_t n);
};

/// The table of simd::active_isa().
template <class T>
const ExpertGateTable<T>& expert_gate_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::ExpertGateTable<float>, expert_gate_f32)
STRATA_DECLARE_ISA_TABLE(detail::ExpertGateTable<bf16>, expert_gate_bf16)
STRATA_DECLARE_ISA_TABLE(detail::ExpertGateTable<f16>, expert_gate_f16)
}  // namespace strata::kernels
