#pragma once

#include <cstdint>

#include <strata/runtime/float16.h>
#include <strata/simd/isa_table.h>

namespace strata::kernels::detail {

template <class T>
struct ScanForwardOperands;
template <class T>
struct ScanBackwardOperands;
template <class T>
struct ScanCachedOperands;

/// The state scan (recurrent/scan_pairs.h) for stored dtype T: what uses slot `at` of `slots`. Each
/// instruction set has one table per T, and all give the same bits.
template <class T>
struct StateScanTable {
  void (*forward)(const ScanForwardOperands<T>& a, std::int64_t at, std::int64_t slots);
  void (*backward)(const ScanBackwardOperands<T>& a, std::int64_t at, std::int64_t slots);
  void (*cached)(const ScanCachedOperands<T>& a, std::int64_t at, std::int64_t slots);
};

/// The table of simd::active_isa().
template <class T>
const StateScanTable<T>& state_scan_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::StateScanTable<float>, state_scan_f32)
STRATA_DECLARE_ISA_TABLE(detail::StateScanTable<bf16>, state_scan_bf16)
STRATA_DECLARE_ISA_TABLE(detail::StateScanTable<f16>, state_scan_f16)
}  // namespace strata::kernels
