#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float8.h>

// Casts to fp8: the scale, the conversion of a value, and which part of a tile each thread of a block casts.
// The host runs the same functions.
namespace strata::kernels::detail {

enum class Fp8Format : std::uint8_t { e4m3, e5m2 };

STRATA_HD std::uint8_t to_fp8(Fp8Format format, float x) {
  return format == Fp8Format::e4m3 ? f32_to_e4m3(x) : f32_to_e5m2(x);
}

/// The bits of |x|, which order like the values, with NaN last.
STRATA_HD std::uint32_t magnitude_bits(float x) { return __builtin_bit_cast(std::uint32_t, x) & 0x7FFFFFFFu; }

struct Fp8Scale {
  float scale, inverse;
};
/// The scale of values whose amax has these bits: the largest power of two that keeps amax within the
/// format's maximum, which is 1.75 times a power of two in both formats, and whose inverse is a normal
/// number.
STRATA_HD Fp8Scale fp8_scale(Fp8Format format, std::uint32_t amax_bits) {
  constexpr std::uint32_t kNaN = 0x7FC00000u;
  if (amax_bits >= 0x7F800000u) return {__builtin_bit_cast(float, kNaN), __builtin_bit_cast(float, kNaN)};
  if (amax_bits == 0) return {1.0f, 1.0f};
  const int top = format == Fp8Format::e4m3 ? 8 : 15;
  const int fraction = static_cast<int>(amax_bits & 0x7FFFFFu),
            exponent = static_cast<int>(amax_bits >> 23) - 127;
  int by = top - exponent - (fraction > 0x600000 ? 1 : 0);
  if (by > 126) by = 126;
  return {__builtin_bit_cast(float, static_cast<std::uint32_t>(127 + by) << 23),
          __builtin_bit_cast(float, static_cast<std::uint32_t>(127 - by) << 23)};
}

/// A thread block casts a square tile of this side; each thread casts four neighbours of every sixteenth row.
inline constexpr int kFp8Tile = 64, kFp8Threads = 256, kFp8TilePitch = kFp8Tile + 4;
inline constexpr int kFp8TileBytes = kFp8Tile * kFp8TilePitch;

struct Fp8Tile {
  std::int64_t row, column;    ///< where the tile begins
  std::int64_t rows, columns;  ///< extents of the whole operand; multiples of sixteen
};

/// Thread `thread` casts its part of the tile into `out` (stored as the operand's rows; null: none) and,
/// transposed, into `tile`.
template <class T>
STRATA_HD void cast_tile(int thread, const Fp8Tile& at, const T* x, float scale, Fp8Format format,
                         std::uint8_t* out, std::uint8_t* tile) {
  const int across = thread % (kFp8Tile / 4) * 4;
  for (int down = thread / (kFp8Tile / 4); down < kFp8Tile; down += kFp8Threads / (kFp8Tile / 4)) {
    const std::int64_t row = at.row + down, column = at.column + across;
    if (row >= at.rows || column >= at.columns) continue;  // 16 divides both: all four are inside, or none
    std::uint32_t four = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t quantized = to_fp8(format, to_f32(x[row * at.columns + column + i]) * scale);
      tile[(across + i) * kFp8TilePitch + down] = quantized;
      four |= static_cast<std::uint32_t>(quantized) << (8 * i);
    }
    if (out != nullptr) *reinterpret_cast<std::uint32_t*>(out + row * at.columns + column) = four;
  }
}
/// Thread `thread` stores its part of the transposed tile, after all threads have cast theirs.
STRATA_HD void store_transposed(int thread, const Fp8Tile& at, const std::uint8_t* tile, std::uint8_t* out) {
  const int down = thread % (kFp8Tile / 4) * 4;
  for (int across = thread / (kFp8Tile / 4); across < kFp8Tile; across += kFp8Threads / (kFp8Tile / 4)) {
    const std::int64_t row = at.row + down, column = at.column + across;
    if (row >= at.rows || column >= at.columns) continue;
    *reinterpret_cast<std::uint32_t*>(out + column * at.rows + row) =
        *reinterpret_cast<const std::uint32_t*>(tile + across * kFp8TilePitch + down);
  }
}

}  // namespace strata::kernels::detail
