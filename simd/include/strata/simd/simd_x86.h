#pragma once

// The Register of simd.h for SSE4.2, AVX2 and AVX-512.
#ifndef STRATA_ISA
#error "strata/simd/simd_x86.h is a part of strata/simd/simd.h"
#endif

#include <immintrin.h>
#include <xsimd/xsimd.hpp>

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

namespace strata::simd::STRATA_ISA {

#if defined(STRATA_ISA_IS_avx512)
// Indices of a permutation of the 16-bit words of two registers; the second register's words start at 32.
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
  /// x * y + z, rounded once.
  static STRATA_HD Part multiply_add(Part x, Part y, Part z) {
#if defined(STRATA_ISA_IS_avx512)
    return _mm512_fmadd_ps(x, y, z);
#elif defined(STRATA_ISA_IS_avx2)
    return _mm256_fmadd_ps(x, y, z);
#else
    alignas(16) float a[kLanes], b[kLanes], c[kLanes];
    store(a, x);
    store(b, y);
    store(c, z);
    for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return load(c);
#endif
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

  // 16-bit storage: the conversions of float16.h in each lane, with the same bits.
  using Halves = Bits;  // 16 bits in the low half of each lane
  static STRATA_HD Part load(const bf16* p) { return xsimd::bitwise_cast<Part>(load_halves(p) << 16); }
  static STRATA_HD void store(bf16* p, Part x) { store_halves(p, rounded_to_bf16(x) >> 16); }
  /// Rounds each lane to bf16, which is the upper half of the lane's result.
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

  // A full register of 16-bit values corresponds to two registers of f32; converting both at once needs fewer
  // shuffles than one after the other. join_words() makes 32-bit lanes of the 16-bit words `high` and `low`;
  // split_words() and high_words() split lanes into words.
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
  /// Non-temporal store, which bypasses the caches, for data that is not read soon. `p` must be aligned to
  /// the register. fence_streams() orders these stores.
  static STRATA_HD void stream_two(bf16* p, Part a, Part b) {
    stream_words(p, high_words(rounded_to_bf16(a), rounded_to_bf16(b)));
  }
  static STRATA_HD void fence_streams() { _mm_sfence(); }
  static STRATA_HD void load_two_masters(const bf16* high, const std::uint16_t* low, Part& a, Part& b) {
    const Words words = load_words(low);
    join_words(subtract_sign_bit(load_words(high), words), words, a, b);  // the low half is signed
  }
  static STRATA_HD void store_two_masters(bf16* high, std::uint16_t* low, Part a, Part b) {
    if (either_is_nan(a, b)) {  // rare, so a branch costs less than two selects
      a = quiet_nan(a);
      b = quiet_nan(b);
    }
    Words upper, lower;
    split_words(bits_of(a), bits_of(b), upper, lower);
    store_words(high, add_sign_bit(upper, lower));
    store_words(low, lower);
  }
#if defined(STRATA_ISA_IS_sse42)
  using Words = __m128i;
  static STRATA_HD Words load_words(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static STRATA_HD void store_words(void* p, Words x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
  static STRATA_HD void stream_words(void* p, Words x) { _mm_stream_si128(static_cast<__m128i*>(p), x); }
  static STRATA_HD void stream_two(f16* p, Part a, Part b) { store_two(p, a, b); }
  static STRATA_HD Words zero_words() { return _mm_setzero_si128(); }
  static STRATA_HD Words subtract_sign_bit(Words x, Words y) {
    return _mm_sub_epi16(x, _mm_srli_epi16(y, 15));
  }
  static STRATA_HD Words add_sign_bit(Words x, Words y) { return _mm_add_epi16(x, _mm_srli_epi16(y, 15)); }
  static STRATA_HD bool either_is_nan(Part a, Part b) { return _mm_movemask_ps(_mm_cmpunord_ps(a, b)) != 0; }
  static STRATA_HD void join_words(Words high, Words low, Part& a, Part& b) {
    a = float_of(Bits(_mm_unpacklo_epi16(low, high)));
    b = float_of(Bits(_mm_unpackhi_epi16(low, high)));
  }
  static STRATA_HD Words high_words(Halves a, Halves b) { return _mm_packus_epi32(a >> 16, b >> 16); }
  static STRATA_HD void split_words(Halves a, Halves b, Words& high, Words& low) {
    const __m128i sorted = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m128i first = _mm_shuffle_epi8(a, sorted), second = _mm_shuffle_epi8(b, sorted);
    high = _mm_unpackhi_epi64(first, second);
    low = _mm_unpacklo_epi64(first, second);
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
  static STRATA_HD void stream_words(void* p, Words x) { _mm256_stream_si256(static_cast<__m256i*>(p), x); }
  static STRATA_HD void stream_two(f16* p, Part a, Part b) {
    stream_words(p, _mm256_set_m128i(_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT),
                                     _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)));
  }
  static STRATA_HD Words zero_words() { return _mm256_setzero_si256(); }
  static STRATA_HD Words subtract_sign_bit(Words x, Words y) {
    return _mm256_sub_epi16(x, _mm256_srli_epi16(y, 15));
  }
  static STRATA_HD Words add_sign_bit(Words x, Words y) {
    return _mm256_add_epi16(x, _mm256_srli_epi16(y, 15));
  }
  static STRATA_HD bool either_is_nan(Part a, Part b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
  }
  // AVX2 packs and unpacks within 128-bit lanes; swapping the middle quarters restores the order of memory.
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
  static STRATA_HD void split_words(Halves a, Halves b, Words& high, Words& low) {
    const __m256i sorted = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));  // low words, then high words
    const __m256i first = _mm256_shuffle_epi8(a, sorted), second = _mm256_shuffle_epi8(b, sorted);
    high = swap_middle(_mm256_unpackhi_epi64(first, second));
    low = swap_middle(_mm256_unpacklo_epi64(first, second));
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
  static STRATA_HD void stream_words(void* p, Words x) { _mm512_stream_si512(static_cast<__m512i*>(p), x); }
  static STRATA_HD void stream_two(f16* p, Part a, Part b) {
    const __m256i first = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
    stream_words(p, _mm512_inserti64x4(_mm512_castsi256_si512(first),
                                       _mm512_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT), 1));
  }
  static STRATA_HD Words zero_words() { return _mm512_setzero_si512(); }
  static STRATA_HD Words subtract_sign_bit(Words x, Words y) {
    return _mm512_sub_epi16(x, _mm512_srli_epi16(y, 15));
  }
  static STRATA_HD Words add_sign_bit(Words x, Words y) {
    return _mm512_add_epi16(x, _mm512_srli_epi16(y, 15));
  }
  static STRATA_HD bool either_is_nan(Part a, Part b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0; }
  static STRATA_HD void join_words(Words high, Words low, Part& a, Part& b) {
    a = float_of(Bits(_mm512_permutex2var_epi16(low, _mm512_load_si512(kJoinFirst.of), high)));
    b = float_of(Bits(_mm512_permutex2var_epi16(low, _mm512_load_si512(kJoinSecond.of), high)));
  }
  static STRATA_HD Words high_words(Halves a, Halves b) {
    return _mm512_permutex2var_epi16(a, _mm512_load_si512(kOddWords.of), b);
  }
  static STRATA_HD void split_words(Halves a, Halves b, Words& high, Words& low) {
    high = high_words(a, b);
    low = _mm512_permutex2var_epi16(a, _mm512_load_si512(kEvenWords.of), b);
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
  /// The instruction sets the quiet bit of a NaN. The scalar conversion does not, so the bit is restored.
  static STRATA_HD Part keep_signaling(Part wide, Halves halves) {
    const Halves bits = xsimd::bitwise_cast<Halves>(wide);
    const Part as_stored = xsimd::bitwise_cast<Part>(bits ^ (~(halves << 13) & Halves(0x400000u)));
    return xsimd::select(wide == wide, wide, as_stored);
  }
#endif
};

}  // namespace strata::simd::STRATA_ISA
