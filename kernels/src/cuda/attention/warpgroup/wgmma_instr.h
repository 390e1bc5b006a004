#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <strata/simd/math/host_device.h>

#include "cuda/warps.h"

/// The instruction wgmma.mma_async (m64nNk16, f32 accumulators) and the descriptors of its operands.
namespace strata::kernels::detail {

/// The descriptor of an operand in shared memory (PTX ISA, "Matrix Descriptor Format") with the 128-byte
/// swizzle. Its address has only 18 bits; `window`, which only the emulation sets, is the 256 KiB window that
/// contains the operand.
struct MatrixDescriptor {
  static constexpr std::uint32_t kWindow = 1u << 18;
  std::uint64_t bits;
  const std::byte* window;
};
/// The offsets are the bytes from one panel of columns to the next, and from eight rows to the next eight.
STRATA_HD constexpr std::uint64_t descriptor_bits(std::uint32_t address, int leading_byte_offset,
                                                  int stride_byte_offset) {
  constexpr std::uint64_t kSwizzle128 = 1;
  return (address % MatrixDescriptor::kWindow >> 4) |
         static_cast<std::uint64_t>(leading_byte_offset >> 4) << 16 |
         static_cast<std::uint64_t>(stride_byte_offset >> 4) << 32 | kSwizzle128 << 62;
}

#ifdef __CUDACC__

// Accumulators of columns 8 n on, of 32 columns, and of all 64 or 128.
#define STRATA_SUMS(n) "+f"(sums(n)[0]), "+f"(sums(n)[1]), "+f"(sums(n)[2]), "+f"(sums(n)[3])
#define STRATA_SUMS_4(n) STRATA_SUMS(n), STRATA_SUMS(n + 1), STRATA_SUMS(n + 2), STRATA_SUMS(n + 3)
#define STRATA_SUMS_8 STRATA_SUMS_4(0), STRATA_SUMS_4(4)
#define STRATA_SUMS_16 STRATA_SUMS_8, STRATA_SUMS_4(8), STRATA_SUMS_4(12)
#define STRATA_NAMES_32                                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define STRATA_NAMES_64                                                                                    \
  STRATA_NAMES_32                                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define STRATA_WGMMA(n, type) "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " "
// A in shared memory. The operands are numbered after the accumulators.
#define STRATA_WGMMA_SS(n, type, names, list, a, b, adds, transposed)                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds                                                   \
               ", 0;\n" STRATA_WGMMA(n, type) "{" names "}, " a ", " b ", p, 1, 1, 0, " transposed ";\n}" \
               : list                                                                                     \
               : "l"(left.bits), "l"(right.bits), "r"(accumulate ? 1 : 0), "n"(kTransposed ? 1 : 0))
// A in registers.
#define STRATA_WGMMA_RS(n, type, names, list, a, b, adds, transposed)                                    \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " adds                                                  \
               ", 0;\n" STRATA_WGMMA(n, type) "{" names "}, {" a "}, " b ", p, 1, 1, " transposed ";\n}" \
               : list                                                                                    \
               : "r"(left.values[0]), "r"(left.values[1]), "r"(left.values[2]), "r"(left.values[3]),     \
                 "l"(right.bits), "r"(accumulate ? 1 : 0), "n"(kTransposed ? 1 : 0))

/// Starts sums (+)= left * right without waiting for it. sums(n) are the lane's four accumulators of columns
/// 8 n on.
template <class T, int kColumns, bool kTransposed, class Sums>
__device__ __forceinline__ void wgmma(const Sums& sums, const MatrixDescriptor& left,
                                      const MatrixDescriptor& right, bool accumulate) {
  static_assert(kColumns == 64 || kColumns == 128);
  constexpr bool kIsBf16 = std::is_same_v<T, bf16>;
  if constexpr (kColumns == 64 && kIsBf16)
    STRATA_WGMMA_SS("64", "bf16", STRATA_NAMES_32, STRATA_SUMS_8, "%32", "%33", "%34", "%35");
  else if constexpr (kColumns == 64)
    STRATA_WGMMA_SS("64", "f16", STRATA_NAMES_32, STRATA_SUMS_8, "%32", "%33", "%34", "%35");
  else if constexpr (kIsBf16)
    STRATA_WGMMA_SS("128", "bf16", STRATA_NAMES_64, STRATA_SUMS_16, "%64", "%65", "%66", "%67");
  else
    STRATA_WGMMA_SS("128", "f16", STRATA_NAMES_64, STRATA_SUMS_16, "%64", "%65", "%66", "%67");
}
template <class T, int kColumns, bool kTransposed, class Sums>
__device__ __forceinline__ void wgmma(const Sums& sums, const Fragment& left, const MatrixDescriptor& right,
                                      bool accumulate) {
  static_assert(kColumns == 64 || kColumns == 128);
  constexpr bool kIsBf16 = std::is_same_v<T, bf16>;
  if constexpr (kColumns == 64 && kIsBf16)
    STRATA_WGMMA_RS("64", "bf16", STRATA_NAMES_32, STRATA_SUMS_8, "%32, %33, %34, %35", "%36", "%37", "%38");
  else if constexpr (kColumns == 64)
    STRATA_WGMMA_RS("64", "f16", STRATA_NAMES_32, STRATA_SUMS_8, "%32, %33, %34, %35", "%36", "%37", "%38");
  else if constexpr (kIsBf16)
    STRATA_WGMMA_RS("128", "bf16", STRATA_NAMES_64, STRATA_SUMS_16, "%64, %65, %66, %67", "%68", "%69",
                    "%70");
  else
    STRATA_WGMMA_RS("128", "f16", STRATA_NAMES_64, STRATA_SUMS_16, "%64, %65, %66, %67", "%68", "%69", "%70");
}
#undef STRATA_WGMMA_RS
#undef STRATA_WGMMA_SS
#undef STRATA_WGMMA
#undef STRATA_NAMES_64
#undef STRATA_NAMES_32
#undef STRATA_SUMS_16
#undef STRATA_SUMS_8
#undef STRATA_SUMS_4
#undef STRATA_SUMS

#endif

}  // namespace strata::kernels::detail
