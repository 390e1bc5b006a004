#pragma once

// For SIMD kernels only, that is, for translation units that cmake/StrataSimd.cmake compiles once per
// instruction set. Everything here is in a namespace named after the set, so that no two sets share a symbol.
#ifndef STRATA_ISA
#error "strata/simd/simd.h is for SIMD kernels; see cmake/StrataSimd.cmake"
#endif

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/simd/math/master.h>
#include <strata/runtime/float16.h>

#if defined(STRATA_ISA_IS_neon)
#include <strata/simd/simd_neon.h>
#elif defined(STRATA_ISA_IS_scalar)
#include <strata/simd/simd_scalar.h>
#else
#include <strata/simd/simd_x86.h>
#endif

/// Placed before a loop over the registers of a value, which is unrolled into straight code; but for
/// `scalar`, whose 16 registers of one lane would be most of the compiler's work and are used by CPUs without
/// any other set.
#ifdef STRATA_ISA_IS_scalar
#define STRATA_UNROLL_PARTS
#else
#define STRATA_UNROLL_PARTS _Pragma("GCC unroll 16")
#endif

namespace strata::simd::STRATA_ISA {

/// One value broadcast to all lanes. It needs a single register, even where f32x16 needs several.
struct f32splat {
  Register::Part part;
  explicit STRATA_HD f32splat(float x) : part(Register::broadcast(x)) {}
};

/// 16 lanes of f32 on every instruction set: one register of AVX-512, two of AVX2, four of SSE4.2 or
/// NEON, or 16 floats. Since the width is the same everywhere, a reduction over lanes has the same shape and
/// thus the same bits.
struct f32x16 {
  using Part = Register::Part;
  static constexpr int kLanes = 16;
  static constexpr int kParts = kLanes / Register::kLanes;
  Part part[kParts];

  f32x16() = default;
  explicit STRATA_HD f32x16(float x) {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) part[i] = Register::broadcast(x);
  }
  explicit STRATA_HD f32x16(const f32splat& x) {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) part[i] = x.part;
  }
  /// Loads from and stores to memory of float, bf16 or f16; bf16 and f16 are rounded to nearest even when
  /// stored.
  template <class T>
  static STRATA_HD f32x16 load(const T* p) {
    f32x16 out;
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) out.part[i] = Register::load(p + i * Register::kLanes);
    return out;
  }
  template <class T>
  STRATA_HD void store(T* p) const {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) Register::store(p + i * Register::kLanes, part[i]);
  }
  /// Loads the first n < 16 lanes and sets the others to `fill`. Reads nothing past p + n.
  template <class T>
  static STRATA_HD f32x16 load_first(const T* p, int n, float fill = 0.0f) {
    alignas(64) float lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = fill;
    for (int i = 0; i < n; ++i) lanes[i] = to_f32(p[i]);
    return load(lanes);
  }
  template <class T>
  STRATA_HD void store_first(T* p, int n) const {
    alignas(64) float lanes[kLanes];
    store(lanes);
    for (int i = 0; i < n; ++i) p[i] = from_f32<T>(lanes[i]);
  }
  /// Load and store 16 split masters; the functions with `first` in their name, n < 16 of them.
  static STRATA_HD f32x16 load_master(const bf16* high, const std::uint16_t* low) {
    f32x16 out;
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i)
      out.part[i] = Register::load_master(high + i * Register::kLanes, low + i * Register::kLanes);
    return out;
  }
  STRATA_HD void store_master(bf16* high, std::uint16_t* low) const {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i)
      Register::store_master(high + i * Register::kLanes, low + i * Register::kLanes, part[i]);
  }
  static STRATA_HD f32x16 load_first_master(const bf16* high, const std::uint16_t* low, int n) {
    alignas(64) float lanes[kLanes] = {};
    for (int i = 0; i < n; ++i) lanes[i] = join_master(high[i], low[i]);
    return load(lanes);
  }
  STRATA_HD void store_first_master(bf16* high, std::uint16_t* low, int n) const {
    alignas(64) float lanes[kLanes];
    store(lanes);
    for (int i = 0; i < n; ++i) {
      const SplitMaster split = split_master(lanes[i]);
      high[i] = split.high;
      low[i] = split.low;
    }
  }
  /// This value's first n lanes, with zero in the others.
  STRATA_HD f32x16 keep_first(int n) const {
    alignas(64) float lanes[kLanes];
    store(lanes);
    for (int i = n; i < kLanes; ++i) lanes[i] = 0.0f;
    return load(lanes);
  }

#define STRATA_F32X16_OPERATOR(op)                                                             \
  friend STRATA_HD f32x16 operator op(const f32x16& a, const f32x16& b) {                      \
    f32x16 out;                                                                                \
    STRATA_UNROLL_PARTS for (int i = 0; i < kParts; ++i) out.part[i] = a.part[i] op b.part[i]; \
    return out;                                                                                \
  }                                                                                            \
  friend STRATA_HD f32x16 operator op(const f32x16& a, const f32splat& b) {                    \
    f32x16 out;                                                                                \
    STRATA_UNROLL_PARTS for (int i = 0; i < kParts; ++i) out.part[i] = a.part[i] op b.part;    \
    return out;                                                                                \
  }                                                                                            \
  friend STRATA_HD f32x16 operator op(const f32splat& a, const f32x16& b) {                    \
    f32x16 out;                                                                                \
    STRATA_UNROLL_PARTS for (int i = 0; i < kParts; ++i) out.part[i] = a.part op b.part[i];    \
    return out;                                                                                \
  }
  STRATA_F32X16_OPERATOR(+)
  STRATA_F32X16_OPERATOR(-)
  STRATA_F32X16_OPERATOR(*)
  STRATA_F32X16_OPERATOR(/)
#undef STRATA_F32X16_OPERATOR
};

/// x * y + z in each lane, rounded once: the only place where a product is not rounded on its own.
STRATA_HD f32x16 multiply_add(const f32splat& x, const f32x16& y, const f32x16& z) {
  f32x16 out;
  STRATA_UNROLL_PARTS
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::multiply_add(x.part, y.part[i], z.part[i]);
  return out;
}
STRATA_HD f32x16 sqrt_of(const f32x16& x) {
  f32x16 out;
  STRATA_UNROLL_PARTS
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::sqrt(x.part[i]);
  return out;
}
STRATA_HD f32x16 select_greater(const f32x16& a, const f32x16& b, const f32x16& x, const f32x16& y) {
  f32x16 out;
  STRATA_UNROLL_PARTS
  for (int i = 0; i < f32x16::kParts; ++i)
    out.part[i] = Register::select_greater(a.part[i], b.part[i], x.part[i], y.part[i]);
  return out;
}
STRATA_HD f32x16 pow2_of_rounded(const f32x16& t) {
  f32x16 out;
  STRATA_UNROLL_PARTS
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::pow2_of_rounded(t.part[i]);
  return out;
}

/// 16 lanes of 32-bit unsigned integers.
struct u32x16 {
  using Part = Register::Bits;
  static constexpr int kParts = f32x16::kParts;
  Part part[kParts];

  u32x16() = default;
  explicit STRATA_HD u32x16(std::uint32_t x) {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) part[i] = Register::broadcast(x);
  }
  /// first, first + 1, ...
  static STRATA_HD u32x16 counting(std::uint32_t first) {
    u32x16 out;
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i)
      out.part[i] = Register::counting() +
                    Register::broadcast(first + static_cast<std::uint32_t>(i * Register::kLanes));
    return out;
  }
  static STRATA_HD u32x16 load_bytes(const std::uint8_t* p) {
    u32x16 out;
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) out.part[i] = Register::load_bytes(p + i * Register::kLanes);
    return out;
  }
  /// Store the low 8 or 16 bits of each lane.
  STRATA_HD void store_bytes(std::uint8_t* p) const {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) Register::store_bytes(p + i * Register::kLanes, part[i]);
  }
  STRATA_HD void store_halves(std::uint16_t* p) const {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) Register::store_halves(p + i * Register::kLanes, part[i]);
  }
  STRATA_HD u32x16 operator>>(int n) const {
    u32x16 out;
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kParts; ++i) out.part[i] = part[i] >> n;
    return out;
  }
#define STRATA_U32X16_OPERATOR(op)                                                             \
  friend STRATA_HD u32x16 operator op(const u32x16& a, const u32x16& b) {                      \
    u32x16 out;                                                                                \
    STRATA_UNROLL_PARTS for (int i = 0; i < kParts; ++i) out.part[i] = a.part[i] op b.part[i]; \
    return out;                                                                                \
  }
  STRATA_U32X16_OPERATOR(+)
  STRATA_U32X16_OPERATOR(*)
  STRATA_U32X16_OPERATOR(^)
  STRATA_U32X16_OPERATOR(&)
  STRATA_U32X16_OPERATOR(|)
#undef STRATA_U32X16_OPERATOR
};
STRATA_HD u32x16 bits_of(const f32x16& x) {
  u32x16 out;
  STRATA_UNROLL_PARTS
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::bits_of(x.part[i]);
  return out;
}
STRATA_HD f32x16 float_of(const u32x16& x) {
  f32x16 out;
  STRATA_UNROLL_PARTS
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::float_of(x.part[i]);
  return out;
}
STRATA_HD u32x16 max_of(const u32x16& a, const u32x16& b) {
  u32x16 out;
  STRATA_UNROLL_PARTS
  for (int i = 0; i < u32x16::kParts; ++i) out.part[i] = Register::max(a.part[i], b.part[i]);
  return out;
}
/// x, with every NaN replaced by the canonical quiet NaN.
STRATA_HD f32x16 quiet_nan(const f32x16& x) {
  f32x16 out;
  STRATA_UNROLL_PARTS
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::quiet_nan(x.part[i]);
  return out;
}
STRATA_HD f32x16 abs_of(const f32x16& x) { return float_of(bits_of(x) & u32x16(0x7FFFFFFFu)); }

/// Maximum lane by lane; b if either is NaN.
STRATA_HD f32x16 max_of(const f32x16& a, const f32x16& b) { return select_greater(a, b, a, b); }

/// Sum of the lanes by the tree of every reduction over lanes: lane i plus lane i + 8, then i + 4, i + 2,
/// i + 1.
STRATA_HD float reduce_add(const f32x16& x) {
  alignas(64) float lanes[16];
  x.store(lanes);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  return lanes[0];
}
STRATA_HD float reduce_max(const f32x16& x) {
  alignas(64) float lanes[16];
  x.store(lanes);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  return lanes[0];
}

/// 32 lanes of f32: the minimum for which every instruction set loads and stores full registers of 16-bit
/// values.
struct f32x32 {
  f32x16 a, b;

  template <class T>
  static STRATA_HD f32x32 load(const T* p) {
    f32x32 out;
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kPairs; ++i) Register::load_two(p + i * kStep, out.part(2 * i), out.part(2 * i + 1));
    return out;
  }
  template <class T>
  STRATA_HD void store(T* p) const {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kPairs; ++i) Register::store_two(p + i * kStep, part(2 * i), part(2 * i + 1));
  }
  /// Non-temporal store, which bypasses the caches; `p` must be aligned to 64 bytes.
  template <class T>
  STRATA_HD void stream(T* p) const {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kPairs; ++i) Register::stream_two(p + i * kStep, part(2 * i), part(2 * i + 1));
  }
  static STRATA_HD f32x32 load_master(const bf16* high, const std::uint16_t* low) {
    f32x32 out;
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kPairs; ++i)
      Register::load_two_masters(high + i * kStep, low + i * kStep, out.part(2 * i), out.part(2 * i + 1));
    return out;
  }
  STRATA_HD void store_master(bf16* high, std::uint16_t* low) const {
    STRATA_UNROLL_PARTS
    for (int i = 0; i < kPairs; ++i)
      Register::store_two_masters(high + i * kStep, low + i * kStep, part(2 * i), part(2 * i + 1));
  }

 private:
  static constexpr int kPairs = f32x16::kParts, kStep = 2 * Register::kLanes;
  STRATA_HD f32x16::Part& part(int i) { return i < f32x16::kParts ? a.part[i] : b.part[i - f32x16::kParts]; }
  STRATA_HD const f32x16::Part& part(int i) const {
    return i < f32x16::kParts ? a.part[i] : b.part[i - f32x16::kParts];
  }
};

/// For the lambdas passed to for_each_16: otherwise the compiler may outline a lambda that is called twice.
#define STRATA_LANES_INLINE __attribute__((always_inline))

/// Calls `step(i, lanes)` for i = 0, 16, ... < n; `lanes` is 16, or less in the last call.
template <class Step>
STRATA_HD void for_each_16(std::int64_t n, const Step& step) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) step(i, 16);
  if (i < n) step(i, static_cast<int>(n - i));
}
/// Load and store `lanes` <= 16 lanes; if `lanes` is the constant 16, the compiler removes the branch.
template <class T>
STRATA_HD f32x16 load_lanes(const T* p, int lanes, float fill = 0.0f) {
  return lanes == 16 ? f32x16::load(p) : f32x16::load_first(p, lanes, fill);
}
template <class T>
STRATA_HD void store_lanes(T* p, const f32x16& x, int lanes) {
  if (lanes == 16)
    x.store(p);
  else
    x.store_first(p, lanes);
}

}  // namespace strata::simd::STRATA_ISA
