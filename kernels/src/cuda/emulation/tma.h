#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention/warpgroup/tma.h"
#include "cuda/emulation/warps.h"

/// TMA loads of a block on the host (attention/warpgroup/tma.h), for tests: a box is copied as the PTX ISA
/// specifies, 16 bytes at a time.
namespace strata::kernels::detail {

/// Calls f(to, from, whether to copy or to clear) for each 16 bytes of a box. Rows of 128 bytes are stored
/// one after the other; bits 4-6 of an address are XORed with bits 7-9 (CU_TENSOR_MAP_SWIZZLE_128B).
template <class F>
void for_each_tma_piece(std::uintptr_t to, const TmaTensor& from, const BoxCoord& at, const F& f) {
  for (std::uint32_t row = 0; row < TmaTensor::kBox[1]; ++row)
    for (std::uint32_t piece = 0; piece < TmaTensor::kBox[0] / 8; ++piece) {
      const std::uintptr_t plain = to + row * 128 + piece * 16;
      const std::uint64_t coord[] = {static_cast<std::uint64_t>(at.column) + piece * 8,
                                     static_cast<std::uint64_t>(at.row) + row,
                                     static_cast<std::uint64_t>(at.batch)};
      bool valid = true;
      for (int i = 0; i < 3; ++i) valid = valid && coord[i] < from.sizes[i];
      const std::uint64_t offset = coord[0] * 2 + coord[1] * from.strides[0] + coord[2] * from.strides[1];
      f(reinterpret_cast<void*>(plain ^ (plain >> 7 & 7) << 4),
        static_cast<const std::byte*>(from.at) + (valid ? offset : 0), valid);
    }
}

/// One block. Its shared memory must be 1,024-byte aligned.
template <int kWarps, bool kReversed = false>
struct EmulatedTmaWarps : EmulatedWarps<kWarps, kReversed> {
  TmaTensor matrices[2];
  /// Set if a wait was for another group than the oldest not yet waited for: a barrier signals only one
  /// group.
  mutable bool skipped = false;

  template <int kCount, class T, class Box>
  void tma_load(TmaOperand matrix, const Box& box) const {
    for (int i = 0; i < kCount; ++i) {
      T* to;
      const BoxCoord at = box(i, to);
      for_each_tma_piece(reinterpret_cast<std::uintptr_t>(to), matrices[static_cast<int>(matrix)], at,
                         &EmulatedWarps<kWarps>::cp_async);
    }
  }
  void commit_group() const {
    EmulatedWarps<kWarps>::commit_group();
    ++groups;
  }
  template <int kLeft>
  void wait_group() const {
    skipped = skipped || groups - 1 - kLeft != awaited++;
    EmulatedWarps<kWarps>::template wait_group<kLeft>();
  }

 private:
  mutable int groups = 0, awaited = 0;
};

}  // namespace strata::kernels::detail
