#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/attention/warpgroup/wgmma.h"
#include "cuda/emulation/warps.h"

/// wgmma of a warp on the host (attention/warpgroup/wgmma.h), for tests. Each warp's part is executed as the
/// PTX ISA specifies: an operand is read at the addresses that its descriptor encodes.
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

template <int kBlocks, class Left>
void fence_fragments(const EmulatedWarp&, const Left&) {}
template <int kColumns, class Sums>
void fence_accumulators(const EmulatedWarp&, const Sums&) {}
template <int kColumns, class Sums>
void warpgroup_arrive(const EmulatedWarp&, const Sums&) {}
inline void commit_products(const EmulatedWarp& warp) {
  if (warp.products != nullptr) warp.products->commit();
}
template <int kLeft>
void wait_products(const EmulatedWarp& warp) {
  if (warp.products != nullptr) warp.products->wait(kLeft);
}

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
/// Runs `product` of the accumulators now, or, if the warp has products in flight, when it is waited for.
template <int kColumns, class Sums, class Product>
void run_or_defer(const EmulatedWarp& warp, const Sums& sums, bool accumulate, const Product& product) {
  std::vector<float*> at;
  for (int lane = 0; lane < 32; ++lane)
    for (int n = 0; n < kColumns / 8; ++n) at.push_back(sums(lane, n));
  const auto run = [at, product] {
    product([&](int lane, int n) { return at[static_cast<std::size_t>(lane * (kColumns / 8) + n)]; });
  };
  if (warp.products == nullptr) return run();
  warp.products->add(at, accumulate, run);
}
template <class T, int kColumns, class Sums>
void wgmma_ss(const EmulatedWarp& warp, int part, const Sums& sums, const MatrixDescriptor& left,
              const MatrixDescriptor& right, bool accumulate) {
  run_or_defer<kColumns>(warp, sums, accumulate, [=](const auto& at) {
    emulate_wgmma<T, kColumns, false>(
        at, [&](int row, int k) { return descriptor_element<T, false>(left, part * 16 + row, k); }, right,
        accumulate);
  });
}
template <class T, int kColumns, class Sums, class Left>
void wgmma_rs(const EmulatedWarp& warp, const Sums& sums, const Left& left, const MatrixDescriptor& right) {
  std::vector<const Fragment*> fragments;
  for (int lane = 0; lane < 32; ++lane) fragments.push_back(&left(lane));
  run_or_defer<kColumns>(warp, sums, true, [=](const auto& at) {
    float a[16][16];
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 8; ++i) {
        const FragmentCoord coord = fragment_coord_a(lane, i);
        const unsigned two = fragments[static_cast<std::size_t>(lane)]->values[i / 2];
        T value;
        value.bits = static_cast<std::uint16_t>(two >> (16 * (i % 2)));
        a[coord.row][coord.column] = to_f32(value);
      }
    emulate_wgmma<T, kColumns, true>(
        at, [&](int row, int k) { return a[row][k]; }, right, true);
  });
}

}  // namespace strata::kernels::detail
