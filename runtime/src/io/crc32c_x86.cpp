// The SSE4.2 instruction has a latency of three cycles and a throughput of one per cycle, so three
// independent lanes run at the same time. They are joined by shifting the first two over the bytes that
// follow them. If the CPU has carry-less multiplication of 512-bit vectors (VPCLMULQDQ), everything but the
// last bytes is folded instead, which is twice as fast.
#include <strata/runtime/io/crc32c.h>

#include <immintrin.h>

#include <cstring>

namespace strata::detail {
namespace {

constexpr std::size_t kLane = 4096;  // three lanes fit in the L1 cache; joining costs under 2 % of their time

__attribute__((target("sse4.2"))) std::uint32_t one_lane(std::uint32_t state, const std::byte* p,
                                                         std::size_t n) noexcept {
  std::uint64_t crc = state;
  for (; n >= 8; n -= 8, p += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; n > 0; --n, ++p) narrow = _mm_crc32_u8(narrow, static_cast<std::uint8_t>(*p));
  return narrow;
}

// A shift over a fixed number of bytes by four table lookups, one per byte of the state.
struct ShiftTable {
  std::uint32_t at[4][256];
  explicit ShiftTable(std::size_t bytes) noexcept {
    for (std::uint32_t i = 0; i < 256; ++i)
      for (unsigned k = 0; k < 4; ++k) at[k][i] = crc32c_shift(i << (8 * k), bytes);
  }
  std::uint32_t operator()(std::uint32_t crc) const noexcept {
    return at[0][crc & 0xFF] ^ at[1][(crc >> 8) & 0xFF] ^ at[2][(crc >> 16) & 0xFF] ^ at[3][crc >> 24];
  }
};

__attribute__((target("sse4.2"))) std::uint32_t three_lanes(std::uint32_t state, const std::byte* p,
                                                            const ShiftTable& over_one) noexcept {
  std::uint64_t a = state, b = 0, c = 0;
  for (std::size_t i = 0; i < kLane; i += 8) {
    std::uint64_t wa = 0, wb = 0, wc = 0;
    std::memcpy(&wa, p + i, 8);
    std::memcpy(&wb, p + kLane + i, 8);
    std::memcpy(&wc, p + 2 * kLane + i, 8);
    a = _mm_crc32_u64(a, wa);
    b = _mm_crc32_u64(b, wb);
    c = _mm_crc32_u64(c, wc);
  }
  const std::uint32_t ab = over_one(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b);
  return over_one(ab) ^ static_cast<std::uint32_t>(c);
}

// Four 64-byte vectors of 128-bit lanes, each folded over the 2048 bits to its successor: x^(2048 +- 32)
// modulo the polynomial, reflected (Gopal et al. 2009, "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ"). The remaining 256 bytes, which are congruent to all bytes before, go through the CRC
// instruction. Needs at least 256 bytes.
constexpr std::size_t kFold = 256;
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) std::uint32_t folded(std::uint32_t state,
                                                                          const std::byte* p,
                                                                          std::size_t folds) noexcept {
  constexpr std::int64_t kLow = 0xDCB17AA4, kHigh = 0xB9E02B86;
  const __m512i over = _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
  __m512i x[4];
  for (std::size_t i = 0; i < 4; ++i) x[i] = _mm512_loadu_si512(p + 64 * i);
  x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  for (std::size_t f = 1; f < folds; ++f) {
    p += kFold;
    for (std::size_t i = 0; i < 4; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(p + 64 * i + 2048), _MM_HINT_T0);
      const __m512i low = _mm512_clmulepi64_epi128(x[i], over, 0x00);
      const __m512i high = _mm512_clmulepi64_epi128(x[i], over, 0x11);
      x[i] = _mm512_ternarylogic_epi64(low, high, _mm512_loadu_si512(p + 64 * i), 0x96);
    }
  }
  std::byte rest[kFold];
  for (std::size_t i = 0; i < 4; ++i) _mm512_storeu_si512(rest + 64 * i, x[i]);
  return one_lane(0, rest, kFold);
}

bool can_fold() noexcept {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
}

}  // namespace

bool crc32c_has_hardware() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }

std::uint32_t crc32c_hardware(std::uint32_t seed, std::span<const std::byte> bytes) noexcept {
  static const ShiftTable over_one(kLane);
  std::uint32_t state = ~seed;
  const std::byte* p = bytes.data();
  std::size_t n = bytes.size();
  static const bool fold = can_fold();
  if (fold && n >= kFold) {
    const std::size_t folds = n / kFold;
    state = folded(state, p, folds);
    n -= folds * kFold;
    p += folds * kFold;
  }
  for (; n >= 3 * kLane; n -= 3 * kLane, p += 3 * kLane) state = three_lanes(state, p, over_one);
  return ~one_lane(state, p, n);
}

}  // namespace strata::detail
