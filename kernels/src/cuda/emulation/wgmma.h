#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention/wgmma.h"
#include "cuda/emulation/warps.h"

/// wgmma of a warp on the host (attention/wgmma.h), for tests. Each warp's part is executed as the PTX ISA
/// specifies: an operand is read at the addresses that its descriptor encodes.
namespace strata::kernels::detail {

/// Element k of row `side` of A, or of column `side` of B, where the canonical layouts with 128-byte swizzle
/// place it (PTX ISA, "Shared Memory Matrix Layout").
template <class T, bool kTransposed>
float descriptor_element(const MatrixDescriptor& desc, int side, int k) {
  const auto field = [&](int from) { return static_cast<int>(desc.bits >> from & 0x3FFF) << 4; };
  const int leading_byte_offset = field(16), stride_byte_offset = field(32);
  int address = field(0);
  if (kTransposed)
    address += side % 64 * 2 + side / 64 * leading_byte_offset + k % 8 * 128 + k / 8 * stride_byte_offset;
  else
    address += side % 8 * 128 + side / 8 * stride_byte_offset + k * 2;
  address ^= (address >> 7 & 7) << 4;
  return to_f32(*reinterpret_cast<const T*>(desc.window + address));
}

inline void fence_fragment(const EmulatedWarp&, EmulatedWarp::PerLane<Fragment>&) {}
template <int kColumns, class Sums>
void warpgroup_arrive(const EmulatedWarp&, const Sums&) {}
template <int kColumns, class Sums>
void warpgroup_commit_and_wait(const EmulatedWarp&, const Sums&) {}

/// sums (+)= left * right, where left(row, k) is one of the warp's own 16 rows.
template <class T, int kColumns, bool kTransposed, class Sums, class Left>
void emulate_wgmma(const Sums& sums, const Left& left, const MatrixDescriptor& right, bool accumulate) {
  float a[16][16], b[kColumns][16];
  for (int k = 0; k < 16; ++k) {
    for (int row = 0; row < 16; ++row) a[row][k] = left(row, k);
    for (int column = 0; column < kColumns; ++column)
      b[column][k] = descriptor_element<T, kTransposed>(right, column, k);
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int n = 0; n < kColumns / 8; ++n)
      for (int i = 0; i < 4; ++i) {
        const FragmentCoord at = fragment_coord_c(lane, i);
        float sum = accumulate ? sums(lane, n)[i] : 0.0f;
        for (int k = 0; k < 16; ++k) sum = sum + a[at.row][k] * b[n * 8 + at.column][k];
        sums(lane, n)[i] = sum;
      }
}
template <class T, int kColumns, class Sums>
void wgmma_ss(const EmulatedWarp&, int part, const Sums& sums, const MatrixDescriptor& left,
              const MatrixDescriptor& right, bool accumulate) {
  emulate_wgmma<T, kColumns, false>(
      sums, [&](int row, int k) { return descriptor_element<T, false>(left, part * 16 + row, k); }, right,
      accumulate);
}
template <class T, int kColumns, class Sums>
void wgmma_rs(const EmulatedWarp&, const Sums& sums, const EmulatedWarp::PerLane<Fragment>& left,
              const MatrixDescriptor& right) {
  float a[16][16];
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) {
      const FragmentCoord at = fragment_coord_a(lane, i);
      T value;
      value.bits = static_cast<std::uint16_t>(left.values[lane].values[i / 2] >> (16 * (i % 2)));
      a[at.row][at.column] = to_f32(value);
    }
  emulate_wgmma<T, kColumns, true>(
      sums, [&](int row, int k) { return a[row][k]; }, right, true);
}

}  // namespace strata::kernels::detail
