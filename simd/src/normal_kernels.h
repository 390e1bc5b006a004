#include <strata/simd/simd.h>

#include "normal_table.h"

// Plain arrays, as in gradient_kernels.h: the loops fix the lanes, and the compiler chooses the registers.
namespace strata::simd::STRATA_ISA {
namespace {

// philox() of runtime for all counters, of which the first two words are needed. The rounds are the inner
// loop, so that the words of a register's lanes stay there.
void draw_words(const detail::NormalDraws& draws, std::uint32_t* radii, std::uint32_t* angles) {
  const auto stream0 = static_cast<std::uint32_t>(draws.stream),
             stream1 = static_cast<std::uint32_t>(draws.stream >> 32),
             seed0 = static_cast<std::uint32_t>(draws.seed),
             seed1 = static_cast<std::uint32_t>(draws.seed >> 32);
  for (std::uint32_t i = 0; i < detail::kNormalsAtOnce; ++i) {
    const std::uint64_t index = draws.first + i;
    auto word0 = static_cast<std::uint32_t>(index), word1 = static_cast<std::uint32_t>(index >> 32);
    std::uint32_t word2 = stream0, word3 = stream1;
    _Pragma("GCC unroll 10") for (std::uint32_t round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * word0, p1 = std::uint64_t{0xCD9E8D57u} * word2;
      word0 = static_cast<std::uint32_t>(p1 >> 32) ^ word1 ^ (seed0 + round * 0x9E3779B9u);
      word1 = static_cast<std::uint32_t>(p1);
      word2 = static_cast<std::uint32_t>(p0 >> 32) ^ word3 ^ (seed1 + round * 0xBB67AE85u);
      word3 = static_cast<std::uint32_t>(p0);
    }
    radii[i] = word0;
    angles[i] = word1;
  }
}

// 32 bits as a double: SSE and AVX2 convert signed numbers only.
double from_u32(std::uint32_t x) {
  return static_cast<double>(static_cast<std::int32_t>(x ^ 0x80000000u)) + 0x1p31;
}

// log(x / 2^32) for 1 <= x <= 2^32, within 2^-48 of itself: x = m 2^e with m in [1/sqrt 2, sqrt 2], and log m
// is the series of 2 atanh((m - 1) / (m + 1)). Near 2^32, where the logarithm is small, e is 32. Nothing here
// and below branches, so that loops of it are vectorized.
double log_of_share(double x) {
  constexpr std::uint64_t kRootOfHalf = 0x3FE6'A09E'667F'3BCDu, kExponent = 0xFFF0'0000'0000'0000u,
                          kTwoTo52 = 0x4330'0000'0000'0000u;
  const auto bits = __builtin_bit_cast(std::uint64_t, x);
  const std::uint64_t above = bits - kRootOfHalf;
  const double exponent = __builtin_bit_cast(double, (above >> 52) | kTwoTo52) - (0x1p52 + 32);
  const double m = __builtin_bit_cast(double, bits - (above & kExponent));
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 1.0 / 17;
  sum = sum * z + 1.0 / 15;
  sum = sum * z + 1.0 / 13;
  sum = sum * z + 1.0 / 11;
  sum = sum * z + 1.0 / 9;
  sum = sum * z + 1.0 / 7;
  sum = sum * z + 1.0 / 5;
  sum = sum * z + 1.0 / 3;
  return exponent * 0.6931471805599453 + 2 * s * (1 + z * sum);
}

// cos(2 pi x / 2^32) within 2^-48: x is within an eighth of a turn of a multiple of a quarter.
double cos_of_share(std::uint32_t x) {
  const std::uint32_t quarter = (x + (1u << 29)) >> 30;
  const double t =
      static_cast<double>(static_cast<std::int32_t>(x - (quarter << 30))) * 1.4629180792671596e-09;
  const double z = t * t;
  double cosine = -1.0 / 87178291200;
  cosine = cosine * z + 1.0 / 479001600;
  cosine = cosine * z - 1.0 / 3628800;
  cosine = cosine * z + 1.0 / 40320;
  cosine = cosine * z - 1.0 / 720;
  cosine = cosine * z + 1.0 / 24;
  cosine = cosine * z - 1.0 / 2;
  cosine = cosine * z + 1.0;
  double sine = -1.0 / 1307674368000;
  sine = sine * z + 1.0 / 6227020800;
  sine = sine * z - 1.0 / 39916800;
  sine = sine * z + 1.0 / 362880;
  sine = sine * z - 1.0 / 5040;
  sine = sine * z + 1.0 / 120;
  sine = sine * z - 1.0 / 6;
  sine = t + t * (sine * z);
  const double is_odd = from_u32(quarter & 1u), sign = 1 - from_u32((quarter + 1) & 2u);
  return sign * (is_odd * sine + (1 - is_odd) * cosine);
}

// Rng::normal() without libm. The square root of -2 log and the cosine are each within 2^-47 of those there,
// of which the angle is rounded, too, so that 2^-43 of the first bounds what their products differ by.
void bounds(const detail::NormalDraws& draws, float* __restrict below, float* __restrict above) {
  std::uint32_t radii[detail::kNormalsAtOnce], angles[detail::kNormalsAtOnce];
  draw_words(draws, radii, angles);
  for (int i = 0; i < detail::kNormalsAtOnce; ++i) {
    const double radius = __builtin_sqrt(-2.0 * log_of_share(from_u32(radii[i]) + 1.0));
    const double value = radius * cos_of_share(angles[i]), error = radius * 0x1p-43;
    below[i] = static_cast<float>(value - error);
    above[i] = static_cast<float>(value + error);
  }
}

}  // namespace

extern const detail::NormalTable normal_table = {&bounds};

}  // namespace strata::simd::STRATA_ISA
