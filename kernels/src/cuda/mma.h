#pragma once

#include <type_traits>

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

/// mma.sync m16n8k16 with f32 accumulators.
namespace strata::kernels::detail {

/// The coordinates of element i in a lane's registers (PTX ISA, "Matrix fragments for mma.m16n8k16"). A lane
/// has eight elements of A [16, 16], four of B [16, 8] and four of C [16, 8].
struct FragmentCoord {
  int row, column;
};
STRATA_HD constexpr FragmentCoord fragment_coord_a(int lane, int i) {
  return {lane / 4 + (i / 2 % 2) * 8, lane % 4 * 2 + i % 2 + i / 4 * 8};
}
STRATA_HD constexpr FragmentCoord fragment_coord_b(int lane, int i) {
  return {lane % 4 * 2 + i % 2 + i / 2 * 8, lane / 4};
}
STRATA_HD constexpr FragmentCoord fragment_coord_c(int lane, int i) {
  return {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
}

#ifdef __CUDACC__
/// c += a * b, with two elements of A and B per register.
template <class T>
__device__ __forceinline__ void mma(float* c, const unsigned* a, const unsigned* b) {
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

}  // namespace strata::kernels::detail
