#pragma once

#include <strata/simd/isa.h>

/// Declares a module's tables of SIMD kernels: one table of function pointers per instruction set
/// (cmake/StrataSimd.cmake), called `table` in a namespace named after the set. Use it at the scope of the
/// module's namespace.
#define STRATA_DECLARE_ISA_TABLE(Type, table) \
  namespace scalar {                          \
  extern const Type table;                    \
  }                                           \
  namespace sse42 {                           \
  extern const Type table;                    \
  }                                           \
  namespace avx2 {                            \
  extern const Type table;                    \
  }                                           \
  namespace avx512 {                          \
  extern const Type table;                    \
  }                                           \
  namespace neon {                            \
  extern const Type table;                    \
  }

/// The table of active_isa().
#if defined(__x86_64__)
#define STRATA_ACTIVE_TABLE(table) \
  ::strata::simd::detail::active_table(scalar::table, sse42::table, avx2::table, avx512::table)
#elif defined(__aarch64__)
#define STRATA_ACTIVE_TABLE(table) \
  (::strata::simd::active_isa() == ::strata::simd::CpuIsa::neon ? neon::table : scalar::table)
#else
#define STRATA_ACTIVE_TABLE(table) scalar::table
#endif

#if defined(__x86_64__)
namespace strata::simd::detail {

template <class Table>
const Table& active_table(const Table& scalar, const Table& sse42, const Table& avx2,
                          const Table& avx512) noexcept {
  switch (active_isa()) {
    case CpuIsa::avx512:
      return avx512;
    case CpuIsa::avx2:
      return avx2;
    case CpuIsa::sse42:
      return sse42;
    case CpuIsa::scalar:
    case CpuIsa::neon:
      break;
  }
  return scalar;
}

}  // namespace strata::simd::detail
#endif
