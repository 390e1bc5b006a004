#include "row_table.h"

#include <strata/cpuopt/isa.h>

#include "stored_table.h"

namespace strata::kernels::detail {
namespace {

#if defined(__x86_64__)
template <class Table>
const Table& active(const Table& scalar, const Table& sse42, const Table& avx2,
                    const Table& avx512) noexcept {
  switch (cpuopt::active_isa()) {
    case cpuopt::CpuIsa::avx512:
      return avx512;
    case cpuopt::CpuIsa::avx2:
      return avx2;
    case cpuopt::CpuIsa::sse42:
      return sse42;
    case cpuopt::CpuIsa::scalar:
      break;
  }
  return scalar;
}
#define STRATA_ACTIVE(table) active(scalar::table, sse42::table, avx2::table, avx512::table)
#else
#define STRATA_ACTIVE(table) scalar::table
#endif

}  // namespace

const RowTable& row_table() noexcept { return STRATA_ACTIVE(row_bodies); }
template <>
const StoredTable<float>& row_table<float>() noexcept {
  return STRATA_ACTIVE(stored_f32);
}
template <>
const StoredTable<bf16>& row_table<bf16>() noexcept {
  return STRATA_ACTIVE(stored_bf16);
}
template <>
const StoredTable<f16>& row_table<f16>() noexcept {
  return STRATA_ACTIVE(stored_f16);
}

}  // namespace strata::kernels::detail
