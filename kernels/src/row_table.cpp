#include "row_table.h"

#include "stored_table.h"

namespace strata::kernels::detail {
const RowTable& row_table() noexcept { return STRATA_ACTIVE_TABLE(row_bodies); }
template <>
const StoredTable<float>& row_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(stored_f32);
}
template <>
const StoredTable<bf16>& row_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(stored_bf16);
}
template <>
const StoredTable<f16>& row_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(stored_f16);
}

}  // namespace strata::kernels::detail
