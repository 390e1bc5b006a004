#include <strata/simd/convert.h>

#include <algorithm>

#include "convert_table.h"

namespace strata::simd {
namespace {

const detail::ConvertTable& convert_kernels() noexcept { return STRATA_ACTIVE_TABLE(convert_table); }

}  // namespace

void widen(const float* from, float* into, std::int64_t n) noexcept { std::copy_n(from, n, into); }
void widen(const bf16* from, float* into, std::int64_t n) noexcept {
  convert_kernels().widen_bf16(from, into, n);
}
void widen(const f16* from, float* into, std::int64_t n) noexcept {
  convert_kernels().widen_f16(from, into, n);
}
void narrow(const float* from, float* into, std::int64_t n) noexcept { std::copy_n(from, n, into); }
void narrow(const float* from, bf16* into, std::int64_t n) noexcept {
  convert_kernels().narrow_bf16(from, into, n);
}
void narrow(const float* from, f16* into, std::int64_t n) noexcept {
  convert_kernels().narrow_f16(from, into, n);
}

}  // namespace strata::simd
