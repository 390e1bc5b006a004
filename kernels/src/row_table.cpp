#include "row_table.h"

#include "few_rows_table.h"
#include "simd_table.h"

namespace strata::kernels::detail {
const RowTable& row_table() noexcept { return STRATA_ACTIVE_TABLE(row_kernels); }
template <>
const SimdTable<float>& simd_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(simd_f32);
}
template <>
const SimdTable<bf16>& simd_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(simd_bf16);
}
template <>
const SimdTable<f16>& simd_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(simd_f16);
}
template <>
const FewRowsTable<float>& few_rows_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(few_rows_f32);
}
template <>
const FewRowsTable<bf16>& few_rows_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(few_rows_bf16);
}
template <>
const FewRowsTable<f16>& few_rows_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(few_rows_f16);
}

}  // namespace strata::kernels::detail
