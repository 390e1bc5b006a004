#pragma once

// For SIMD bodies only: units that cmake/StrataSimd.cmake compiles once per instruction set. Everything here
// lies in a namespace named after the set, so that no two sets share a symbol.
#ifndef STRATA_ISA
#error "strata/cpuopt/simd.h is for SIMD bodies; see cmake/StrataSimd.cmake"
#endif

#include <cstdint>

#include <strata/cpuopt/math/elementary.h>
#include <strata/cpuopt/math/hd.h>
#include <strata/cpuopt/math/master.h>
#include <strata/runtime/float16.h>

#if defined(STRATA_ISA_IS_neon)
#include <strata/cpuopt/simd_neon.h>
#elif !defined(STRATA_ISA_IS_scalar)
#include <immintrin.h>
#include <xsimd/xsimd.hpp>
#endif

namespace strata::cpuopt::STRATA_ISA {

#if defined(STRATA_ISA_IS_scalar)
struct Register {
  using Part = float;
  using Bits = std::uint32_t;
  static constexpr int kLanes = 1;
  static STRATA_HD Bits bits_of(Part x) { return __builtin_bit_cast(Bits, x); }
  static STRATA_HD Part float_of(Bits x) { return __builtin_bit_cast(Part, x); }
  static STRATA_HD Bits broadcast(std::uint32_t x) { return x; }
  static STRATA_HD Bits counting() { return 0; }
  static STRATA_HD Bits max(Bits a, Bits b) { return a > b ? a : b; }
  static STRATA_HD Bits load_bytes(const std::uint8_t* p) { return *p; }
  static STRATA_HD void store_bytes(std::uint8_t* p, Bits x) { *p = static_cast<std::uint8_t>(x); }
  static STRATA_HD void store_halves(void* p, Bits x) {
    const auto half = static_cast<std::uint16_t>(x);
    __builtin_memcpy(p, &half, sizeof half);
  }
  static STRATA_HD Part broadcast(float x) { return x; }
  template <class T>
  static STRATA_HD Part load(const T* p) {
    return to_f32(*p);
  }
  template <class T>
  static STRATA_HD void store(T* p, Part x) {
    *p = from_f32<T>(x);
  }
  static STRATA_HD Part load_master(const bf16* high, const std::uint16_t* low) {
    return join_master(*high, *low);
  }
  static STRATA_HD void store_master(bf16* high, std::uint16_t* low, Part x) {
    const SplitMaster split = split_master(x);
    *high = split.high;
    *low = split.low;
  }
  static STRATA_HD Part quiet_nan(Part x) { return x == x ? x : float_of(0x7FC00000u); }
  template <class T>
  static STRATA_HD void load_two(const T* p, Part& a, Part& b) {
    a = load(p);
    b = load(p + 1);
  }
  template <class T>
  static STRATA_HD void store_two(T* p, Part a, Part b) {
    store(p, a);
    store(p + 1, b);
  }
  static STRATA_HD void load_two_masters(const bf16* high, const std::uint16_t* low, Part& a, Part& b) {
    a = load_master(high, low);
    b = load_master(high + 1, low + 1);
  }
  static STRATA_HD void store_two_masters(bf16* high, std::uint16_t* low, Part a, Part b) {
    store_master(high, low, a);
    store_master(high + 1, low + 1, b);
  }
  static STRATA_HD Part sqrt(Part x) { return sqrt_of(x); }
  static STRATA_HD Part select_greater(Part a, Part b, Part x, Part y) {
    return cpuopt::select_greater(a, b, x, y);
  }
  static STRATA_HD Part pow2_of_rounded(Part t) { return cpuopt::pow2_of_rounded(t); }
};
#elif !defined(STRATA_ISA_IS_neon)
#if defined(STRATA_ISA_IS_avx512)
// For a permutation of the words of two registers: those of the second begin at 32.
struct WordIndices {
  alignas(64) std::uint16_t of[32];
};
constexpr WordIndices interleaved(int first) {
  WordIndices out{};
  for (int i = 0; i < 32; ++i) out.of[i] = static_cast<std::uint16_t>(first + i / 2 + (i % 2 == 0 ? 0 : 32));
  return out;
}
constexpr WordIndices every_other(int first) {
  WordIndices out{};
  for (int i = 0; i < 32; ++i) out.of[i] = static_cast<std::uint16_t>(first + 2 * i);
  return out;
}
constexpr WordIndices kJoinFirst = interleaved(0), kJoinSecond = interleaved(16);
constexpr WordIndices kOddWords = every_other(1), kEvenWords = every_other(0);
#endif
struct Register {
#if defined(STRATA_ISA_IS_sse42)
  using Arch = xsimd::sse4_2;
#elif defined(STRATA_ISA_IS_avx2)
  using Arch = xsimd::avx2;
#elif defined(STRATA_ISA_IS_avx512)
  using Arch = xsimd::avx512f;
#endif
  using Part = xsimd::batch<float, Arch>;
  static constexpr int kLanes = static_cast<int>(Part::size);
  static STRATA_HD Part broadcast(float x) { return Part(x); }
  static STRATA_HD Part load(const float* p) { return Part::load_unaligned(p); }
  static STRATA_HD void store(float* p, Part x) { x.store_unaligned(p); }
  static STRATA_HD Part sqrt(Part x) { return xsimd::sqrt(x); }
  static STRATA_HD Part select_greater(Part a, Part b, Part x, Part y) { return xsimd::select(a > b, x, y); }
  static STRATA_HD Part pow2_of_rounded(Part t) {
    using Signed = xsimd::batch<std::int32_t, Arch>;
    return xsimd::bitwise_cast<Part>((xsimd::bitwise_cast<Signed>(t) + Signed(127)) << 23);
  }
  using Bits = xsimd::batch<std::uint32_t, Arch>;
  static STRATA_HD Bits bits_of(Part x) { return xsimd::bitwise_cast<Bits>(x); }
  static STRATA_HD Part float_of(Bits x) { return xsimd::bitwise_cast<Part>(x); }
  static STRATA_HD Bits broadcast(std::uint32_t x) { return Bits(x); }
  static STRATA_HD Bits max(Bits a, Bits b) { return xsimd::max(a, b); }
  static STRATA_HD Bits counting() {
    alignas(64) static constexpr std::uint32_t kFirst[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                           8, 9, 10, 11, 12, 13, 14, 15};
    return Bits::load_aligned(kFirst);
  }

  // 16-bit storage: the conversions of float16.h by lane, with their very bits.
  using Halves = Bits;  // 16 bits in the low half of each lane
  static STRATA_HD Part load(const bf16* p) { return xsimd::bitwise_cast<Part>(load_halves(p) << 16); }
  static STRATA_HD void store(bf16* p, Part x) { store_halves(p, rounded_to_bf16(x) >> 16); }
  /// The bf16 in the upper half of each lane.
  static STRATA_HD Halves rounded_to_bf16(Part x) {
    const Halves bits = bits_of(x);
    const Part rounded = float_of(bits + Halves(0x7FFFu) + ((bits >> 16) & Halves(1u)));
    return bits_of(xsimd::select(x == x, rounded, float_of(bits | Halves(0x400000u))));
  }
  static STRATA_HD Part quiet_nan(Part x) { return xsimd::select(x == x, x, float_of(Bits(0x7FC00000u))); }
  static STRATA_HD Part load_master(const bf16* high, const std::uint16_t* low) {
    using Signed = xsimd::batch<std::int32_t, Arch>;
    const Signed signed_low = xsimd::bitwise_cast<Signed>(load_halves(low) << 16) >> 16;
    return float_of((load_halves(high) << 16) + xsimd::bitwise_cast<Halves>(signed_low));
  }
  static STRATA_HD void store_master(bf16* high, std::uint16_t* low, Part x) {
    const Halves bits = bits_of(quiet_nan(x));
    store_halves(high, (bits + Halves(0x8000u)) >> 16);
    store_halves(low, bits & Halves(0xFFFFu));
  }

  // A whole register of 16-bit values is two of f32: fewer shuffles than one at a time. `high` and `low` are
  // words; join_words() makes lanes of them, high_words() and low_words() take lanes apart.
  template <class T>
  static STRATA_HD void load_two(const T* p, Part& a, Part& b) {
    a = load(p);
    b = load(p + kLanes);
  }
  template <class T>
  static STRATA_HD void store_two(T* p, Part a, Part b) {
    store(p, a);
    store(p + kLanes, b);
  }
  static STRATA_HD void load_two(const bf16* p, Part& a, Part& b) {
    join_words(load_words(p), zero_words(), a, b);
  }
  static STRATA_HD void store_two(bf16* p, Part a, Part b) {
    store_words(p, high_words(rounded_to_bf16(a), rounded_to_bf16(b)));
  }
  static STRATA_HD void load_two_masters(const bf16* high, const std::uint16_t* low, Part& a, Part& b) {
    const Words words = load_words(low);
    join_words(less_sign_of(load_words(high), words), words, a, b);  // the low half is signed
  }
  static STRATA_HD void store_two_masters(bf16* high, std::uint16_t* low, Part a, Part b) {
    const Halves first = bits_of(quiet_nan(a)), second = bits_of(quiet_nan(b));
    store_words(high, high_words(first + Halves(0x8000u), second + Halves(0x8000u)));
    store_words(low, low_words(first, second));
  }
#if defined(STRATA_ISA_IS_sse42)
  using Words = __m128i;
  static STRATA_HD Words load_words(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static STRATA_HD void store_words(void* p, Words x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
  static STRATA_HD Words zero_words() { return _mm_setzero_si128(); }
  static STRATA_HD Words less_sign_of(Words x, Words y) { return _mm_sub_epi16(x, _mm_srli_epi16(y, 15)); }
  static STRATA_HD void join_words(Words high, Words low, Part& a, Part& b) {
    a = float_of(Bits(_mm_unpacklo_epi16(low, high)));
    b = float_of(Bits(_mm_unpackhi_epi16(low, high)));
  }
  static STRATA_HD Words high_words(Halves a, Halves b) { return _mm_packus_epi32(a >> 16, b >> 16); }
  static STRATA_HD Words low_words(Halves a, Halves b) {
    return _mm_packus_epi32(a & Halves(0xFFFFu), b & Halves(0xFFFFu));
  }
  static STRATA_HD Halves load_halves(const void* p) {
    return _mm_cvtepu16_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static STRATA_HD void store_halves(void* p, Halves x) {
    _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packus_epi32(x, x));
  }
  static STRATA_HD Bits load_bytes(const std::uint8_t* p) {
    std::uint32_t raw;
    __builtin_memcpy(&raw, p, sizeof raw);
    return _mm_cvtepu8_epi32(_mm_cvtsi32_si128(static_cast<int>(raw)));
  }
  static STRATA_HD void store_bytes(std::uint8_t* p, Bits x) {
    const __m128i low = x & Bits(0xFFu);
    const __m128i halves = _mm_packus_epi32(low, low);
    const int raw = _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves));
    __builtin_memcpy(p, &raw, sizeof raw);
  }
  static STRATA_HD Part load(const f16* p) {  // no F16C
    alignas(16) float lanes[4];
    for (int i = 0; i < 4; ++i) lanes[i] = to_f32(p[i]);
    return load(lanes);
  }
  static STRATA_HD void store(f16* p, Part x) {
    alignas(16) float lanes[4];
    store(lanes, x);
    for (int i = 0; i < 4; ++i) p[i] = from_f32<f16>(lanes[i]);
  }
#elif defined(STRATA_ISA_IS_avx2)
  using Words = __m256i;
  static STRATA_HD Words load_words(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static STRATA_HD void store_words(void* p, Words x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  static STRATA_HD Words zero_words() { return _mm256_setzero_si256(); }
  static STRATA_HD Words less_sign_of(Words x, Words y) {
    return _mm256_sub_epi16(x, _mm256_srli_epi16(y, 15));
  }
  // Packing and unpacking go by 128 bits; the middle quarters change places so that the order is memory's.
  static STRATA_HD Words swap_middle(Words x) { return _mm256_permute4x64_epi64(x, 0xD8); }
  static STRATA_HD void join_words(Words high, Words low, Part& a, Part& b) {
    high = swap_middle(high);
    low = swap_middle(low);
    a = float_of(Bits(_mm256_unpacklo_epi16(low, high)));
    b = float_of(Bits(_mm256_unpackhi_epi16(low, high)));
  }
  static STRATA_HD Words high_words(Halves a, Halves b) {
    return swap_middle(_mm256_packus_epi32(a >> 16, b >> 16));
  }
  static STRATA_HD Words low_words(Halves a, Halves b) {
    return swap_middle(_mm256_packus_epi32(a & Halves(0xFFFFu), b & Halves(0xFFFFu)));
  }
  static STRATA_HD __m128i load_raw(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static STRATA_HD void store_raw(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
  static STRATA_HD Halves load_halves(const void* p) { return _mm256_cvtepu16_epi32(load_raw(p)); }
  static STRATA_HD void store_halves(void* p, Halves x) {
    store_raw(p, _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
  }
  static STRATA_HD Bits load_bytes(const std::uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static STRATA_HD void store_bytes(std::uint8_t* p, Bits x) {
    const __m256i low = x & Bits(0xFFu);
    const __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(halves, halves));
  }
  static STRATA_HD Part load(const f16* p) {
    const __m128i raw = load_raw(p);
    return keep_signaling(Part(_mm256_cvtph_ps(raw)), Halves(_mm256_cvtepu16_epi32(raw)));
  }
  static STRATA_HD void store(f16* p, Part x) { store_raw(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
#elif defined(STRATA_ISA_IS_avx512)
  using Words = __m512i;
  static STRATA_HD Words load_words(const void* p) { return _mm512_loadu_si512(p); }
  static STRATA_HD void store_words(void* p, Words x) { _mm512_storeu_si512(p, x); }
  static STRATA_HD Words zero_words() { return _mm512_setzero_si512(); }
  static STRATA_HD Words less_sign_of(Words x, Words y) {
    return _mm512_sub_epi16(x, _mm512_srli_epi16(y, 15));
  }
  static STRATA_HD void join_words(Words high, Words low, Part& a, Part& b) {
    a = float_of(Bits(_mm512_permutex2var_epi16(low, _mm512_load_si512(kJoinFirst.of), high)));
    b = float_of(Bits(_mm512_permutex2var_epi16(low, _mm512_load_si512(kJoinSecond.of), high)));
  }
  static STRATA_HD Words high_words(Halves a, Halves b) {
    return _mm512_permutex2var_epi16(a, _mm512_load_si512(kOddWords.of), b);
  }
  static STRATA_HD Words low_words(Halves a, Halves b) {
    return _mm512_permutex2var_epi16(a, _mm512_load_si512(kEvenWords.of), b);
  }
  static STRATA_HD __m256i load_raw(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static STRATA_HD void store_raw(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  static STRATA_HD Halves load_halves(const void* p) { return _mm512_cvtepu16_epi32(load_raw(p)); }
  static STRATA_HD void store_halves(void* p, Halves x) { store_raw(p, _mm512_cvtepi32_epi16(x)); }
  static STRATA_HD Bits load_bytes(const std::uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static STRATA_HD void store_bytes(std::uint8_t* p, Bits x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
  }
  static STRATA_HD Part load(const f16* p) {
    const __m256i raw = load_raw(p);
    return keep_signaling(Part(_mm512_cvtph_ps(raw)), Halves(_mm512_cvtepu16_epi32(raw)));
  }
  static STRATA_HD void store(f16* p, Part x) { store_raw(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }
#endif
#if !defined(STRATA_ISA_IS_sse42)
  /// The instruction quiets a NaN on its way to f32; the scalar conversion keeps its bits.
  static STRATA_HD Part keep_signaling(Part wide, Halves halves) {
    const Halves bits = xsimd::bitwise_cast<Halves>(wide);
    const Part as_stored = xsimd::bitwise_cast<Part>(bits ^ (~(halves << 13) & Halves(0x400000u)));
    return xsimd::select(wide == wide, wide, as_stored);
  }
#endif
};
#endif

/// One value for all lanes, in one register however many make up the lanes.
struct f32splat {
  Register::Part part;
  explicit STRATA_HD f32splat(float x) : part(Register::broadcast(x)) {}
};

/// 16 lanes of f32 on every instruction set: one register of AVX-512, two of AVX2, four of SSE4.2 or
/// NEON, or 16 floats. Because the width is the same everywhere, a reduction over lanes has the same shape,
/// hence the same bits.
struct f32x16 {
  using Part = Register::Part;
  static constexpr int kLanes = 16;
  static constexpr int kParts = kLanes / Register::kLanes;
  Part part[kParts];

  f32x16() = default;
  explicit STRATA_HD f32x16(float x) {
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) part[i] = Register::broadcast(x);
  }
  explicit STRATA_HD f32x16(const f32splat& x) {
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) part[i] = x.part;
  }
  /// From and to memory of float, bf16 or f16; the latter two are rounded to nearest even when stored.
  template <class T>
  static STRATA_HD f32x16 load(const T* p) {
    f32x16 out;
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) out.part[i] = Register::load(p + i * Register::kLanes);
    return out;
  }
  template <class T>
  STRATA_HD void store(T* p) const {
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) Register::store(p + i * Register::kLanes, part[i]);
  }
  /// The first n < 16 lanes from memory, `fill` in the others. Reads nothing past p + n.
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
  /// 16 masters from and to their halves; n < 16 of them by the other pair.
  static STRATA_HD f32x16 load_master(const bf16* high, const std::uint16_t* low) {
    f32x16 out;
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i)
      out.part[i] = Register::load_master(high + i * Register::kLanes, low + i * Register::kLanes);
    return out;
  }
  STRATA_HD void store_master(bf16* high, std::uint16_t* low) const {
#pragma GCC unroll 16
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
  /// The first n lanes of this one, zero in the others.
  STRATA_HD f32x16 keep_first(int n) const {
    alignas(64) float lanes[kLanes];
    store(lanes);
    for (int i = n; i < kLanes; ++i) lanes[i] = 0.0f;
    return load(lanes);
  }

#define STRATA_F32X16_OPERATOR(op)                                                                  \
  friend STRATA_HD f32x16 operator op(const f32x16& a, const f32x16& b) {                           \
    f32x16 out;                                                                                     \
    _Pragma("GCC unroll 16") for (int i = 0; i < kParts; ++i) out.part[i] = a.part[i] op b.part[i]; \
    return out;                                                                                     \
  }                                                                                                 \
  friend STRATA_HD f32x16 operator op(const f32x16& a, const f32splat& b) {                         \
    f32x16 out;                                                                                     \
    _Pragma("GCC unroll 16") for (int i = 0; i < kParts; ++i) out.part[i] = a.part[i] op b.part;    \
    return out;                                                                                     \
  }                                                                                                 \
  friend STRATA_HD f32x16 operator op(const f32splat& a, const f32x16& b) {                         \
    f32x16 out;                                                                                     \
    _Pragma("GCC unroll 16") for (int i = 0; i < kParts; ++i) out.part[i] = a.part op b.part[i];    \
    return out;                                                                                     \
  }
  STRATA_F32X16_OPERATOR(+)
  STRATA_F32X16_OPERATOR(-)
  STRATA_F32X16_OPERATOR(*)
  STRATA_F32X16_OPERATOR(/)
#undef STRATA_F32X16_OPERATOR
};

STRATA_HD f32x16 sqrt_of(const f32x16& x) {
  f32x16 out;
#pragma GCC unroll 16
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::sqrt(x.part[i]);
  return out;
}
STRATA_HD f32x16 select_greater(const f32x16& a, const f32x16& b, const f32x16& x, const f32x16& y) {
  f32x16 out;
#pragma GCC unroll 16
  for (int i = 0; i < f32x16::kParts; ++i)
    out.part[i] = Register::select_greater(a.part[i], b.part[i], x.part[i], y.part[i]);
  return out;
}
STRATA_HD f32x16 pow2_of_rounded(const f32x16& t) {
  f32x16 out;
#pragma GCC unroll 16
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::pow2_of_rounded(t.part[i]);
  return out;
}

/// 16 lanes of 32 bits, with the arithmetic of unsigned integers.
struct u32x16 {
  using Part = Register::Bits;
  static constexpr int kParts = f32x16::kParts;
  Part part[kParts];

  u32x16() = default;
  explicit STRATA_HD u32x16(std::uint32_t x) {
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) part[i] = Register::broadcast(x);
  }
  /// first, first + 1, ...
  static STRATA_HD u32x16 counting(std::uint32_t first) {
    u32x16 out;
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i)
      out.part[i] = Register::counting() +
                    Register::broadcast(first + static_cast<std::uint32_t>(i * Register::kLanes));
    return out;
  }
  static STRATA_HD u32x16 load_bytes(const std::uint8_t* p) {
    u32x16 out;
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) out.part[i] = Register::load_bytes(p + i * Register::kLanes);
    return out;
  }
  /// The low 8 or 16 bits of each lane.
  STRATA_HD void store_bytes(std::uint8_t* p) const {
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) Register::store_bytes(p + i * Register::kLanes, part[i]);
  }
  STRATA_HD void store_halves(std::uint16_t* p) const {
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) Register::store_halves(p + i * Register::kLanes, part[i]);
  }
  STRATA_HD u32x16 operator>>(int n) const {
    u32x16 out;
#pragma GCC unroll 16
    for (int i = 0; i < kParts; ++i) out.part[i] = part[i] >> n;
    return out;
  }
#define STRATA_U32X16_OPERATOR(op)                                                                  \
  friend STRATA_HD u32x16 operator op(const u32x16& a, const u32x16& b) {                           \
    u32x16 out;                                                                                     \
    _Pragma("GCC unroll 16") for (int i = 0; i < kParts; ++i) out.part[i] = a.part[i] op b.part[i]; \
    return out;                                                                                     \
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
#pragma GCC unroll 16
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::bits_of(x.part[i]);
  return out;
}
STRATA_HD f32x16 float_of(const u32x16& x) {
  f32x16 out;
#pragma GCC unroll 16
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::float_of(x.part[i]);
  return out;
}
STRATA_HD u32x16 max_of(const u32x16& a, const u32x16& b) {
  u32x16 out;
#pragma GCC unroll 16
  for (int i = 0; i < u32x16::kParts; ++i) out.part[i] = Register::max(a.part[i], b.part[i]);
  return out;
}
/// x, but one and the same NaN for every NaN.
STRATA_HD f32x16 quiet_nan(const f32x16& x) {
  f32x16 out;
#pragma GCC unroll 16
  for (int i = 0; i < f32x16::kParts; ++i) out.part[i] = Register::quiet_nan(x.part[i]);
  return out;
}
STRATA_HD f32x16 abs_of(const f32x16& x) { return float_of(bits_of(x) & u32x16(0x7FFFFFFFu)); }

/// max by lane; where either is NaN, b.
STRATA_HD f32x16 max_of(const f32x16& a, const f32x16& b) { return select_greater(a, b, a, b); }

/// Lane i with lane i + 8, then + 4, + 2, + 1: the tree of every reduction over lanes.
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

/// 32 lanes: the least for which every set moves whole registers of 16-bit values.
struct f32x32 {
  f32x16 a, b;

  template <class T>
  static STRATA_HD f32x32 load(const T* p) {
    f32x32 out;
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; ++i) Register::load_two(p + i * kStep, out.part(2 * i), out.part(2 * i + 1));
    return out;
  }
  template <class T>
  STRATA_HD void store(T* p) const {
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; ++i) Register::store_two(p + i * kStep, part(2 * i), part(2 * i + 1));
  }
  static STRATA_HD f32x32 load_master(const bf16* high, const std::uint16_t* low) {
    f32x32 out;
#pragma GCC unroll 16
    for (int i = 0; i < kPairs; ++i)
      Register::load_two_masters(high + i * kStep, low + i * kStep, out.part(2 * i), out.part(2 * i + 1));
    return out;
  }
  STRATA_HD void store_master(bf16* high, std::uint16_t* low) const {
#pragma GCC unroll 16
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

/// For the lambdas handed to for_each_16: left to itself, the compiler may outline a body that is used twice.
#define STRATA_LANES_INLINE __attribute__((always_inline))

/// Calls `step(i, lanes)` for i = 0, 16, ... < n; `lanes` is 16, and less only in the last call.
template <class Step>
STRATA_HD void for_each_16(std::int64_t n, const Step& step) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) step(i, 16);
  if (i < n) step(i, static_cast<int>(n - i));
}
/// Whole or partial by `lanes`; where `lanes` is the constant 16 the branch folds away.
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

}  // namespace strata::cpuopt::STRATA_ISA
