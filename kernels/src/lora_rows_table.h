#pragma once

#include <cstdint>

#include <strata/simd/isa_table.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

/// SIMD kernels of lora_rows for stored dtype T: products of a matrix [count, inner] with one vector. Each
/// instruction set has one table per T, and all give the same bits.
template <class T>
struct LoraRowsTable {
  /// out[j] = scale * (x . matrix[j]).
  void (*down)(const T* x, const T* matrix, float scale, float* out, std::int64_t inner, std::int64_t count);
  /// y[j] += u . matrix[j], rounded once.
  void (*up)(const float* u, const T* matrix, T* y, std::int64_t inner, std::int64_t count);
};

/// The table of simd::active_isa().
template <class T>
const LoraRowsTable<T>& lora_rows_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::LoraRowsTable<float>, lora_rows_f32)
STRATA_DECLARE_ISA_TABLE(detail::LoraRowsTable<bf16>, lora_rows_bf16)
STRATA_DECLARE_ISA_TABLE(detail::LoraRowsTable<f16>, lora_rows_f16)
}  // namespace strata::kernels
