#pragma once

#include <cstdint>

#include <strata/simd/simd.h>

// Included by SIMD kernels only.
namespace strata::kernels::STRATA_ISA {
namespace {

using simd::STRATA_ISA::f32x16;

#ifdef STRATA_ISA_IS_scalar
#define STRATA_UNROLL_BLOCK
#else
#define STRATA_UNROLL_BLOCK _Pragma("GCC unroll 16")
#endif

#if defined(STRATA_ISA_IS_avx512)
/// Transposes 16 x 16 values: neighbours, then pairs, then quarters of a register.
STRATA_HD void transpose_lanes(f32x16 (&x)[16]) {
  __m512 r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = x[i].part[0];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      const __m512d low = _mm512_castps_pd(t[i + j]), high = _mm512_castps_pd(t[i + j + 2]);
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88),
                 b = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xDD),
                 c = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88),
                 d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xDD);
    t[i] = _mm512_shuffle_f32x4(a, c, 0x88);
    t[i + 8] = _mm512_shuffle_f32x4(a, c, 0xDD);
    t[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(b, d, 0xDD);
  }
  for (int i = 0; i < 16; ++i) x[i].part[0] = t[i];
}
#elif defined(STRATA_ISA_IS_avx2)
/// Transposes 8 x 8 values.
STRATA_HD void transpose_quarter(__m256 (&r)[8]) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      const __m256d low = _mm256_castps_pd(t[i + j]), high = _mm256_castps_pd(t[i + j + 2]);
      r[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
      r[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
    }
  for (int i = 0; i < 4; ++i) {
    const __m256 a = r[i], b = r[i + 4];
    r[i] = _mm256_permute2f128_ps(a, b, 0x20);
    r[i + 4] = _mm256_permute2f128_ps(a, b, 0x31);
  }
}
STRATA_HD void transpose_lanes(f32x16 (&x)[16]) {
  __m256 all[2][2][8];  // the quarters, by rows and columns
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 2; ++column) {
      for (int i = 0; i < 8; ++i) all[row][column][i] = x[8 * row + i].part[column];
      transpose_quarter(all[row][column]);
    }
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 2; ++column)
      for (int i = 0; i < 8; ++i) x[8 * row + i].part[column] = all[column][row][i];
}
#else
STRATA_HD void transpose_lanes(f32x16 (&x)[16]) {
  alignas(64) float from[16][16], to[16][16];
  for (int i = 0; i < 16; ++i) x[i].store(from[i]);
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) to[i][j] = from[j][i];
  for (int i = 0; i < 16; ++i) x[i] = f32x16::load(to[i]);
}
#endif

/// 16 columns of 16 rows of a matrix: column[i] has element i of each row.
struct TransposedBlock {
  f32x16 column[16];

  template <class T>
  STRATA_HD static TransposedBlock load(const T* rows, std::int64_t ld) {
    TransposedBlock out;
    for (int j = 0; j < 16; ++j) {
      // The CPU does not follow sixteen streams by itself: a single row of a takes 0.85 of the time with
      // this.
      __builtin_prefetch(reinterpret_cast<const char*>(rows + j * ld) + 256);
      out.column[j] = f32x16::load(rows + j * ld);
    }
    transpose_lanes(out.column);
    return out;
  }
  /// The first `columns` of `n` rows; the others are zero, and are not read.
  template <class T>
  STRATA_HD static TransposedBlock load_first(const T* rows, std::int64_t ld, int n, int columns) {
    alignas(64) float lanes[16][16] = {};
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < columns; ++i) lanes[i][j] = to_f32(rows[j * ld + i]);
    TransposedBlock out;
    for (int i = 0; i < 16; ++i) out.column[i] = f32x16::load(lanes[i]);
    return out;
  }
};

}  // namespace
}  // namespace strata::kernels::STRATA_ISA
