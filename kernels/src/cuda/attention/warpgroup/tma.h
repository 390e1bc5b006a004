#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/simd/math/host_device.h>

#include "cuda/warps.h"

/// Loads of head rows by the tensor memory accelerator (TMA, compute capability 9.0): one thread requests
/// boxes of 64 tokens by 64 columns, which arrive with the 128-byte swizzle that wgmma reads, and with zeros
/// past the end of the sequence.
namespace strata::kernels::detail {

/// The matrix to which the columns of a head belong.
enum class TmaOperand { qkv, dout };

/// A matrix of 16-bit values, [batches, seq, columns], with its dimensions in the driver's order: innermost
/// first. The matrix and its rows must be 16-byte aligned.
struct TmaTensor {
  static constexpr std::uint32_t kBox[3] = {64, 64, 1};
  static constexpr int kBoxBytes = 64 * 64 * 2;
  const void* at;
  std::uint64_t sizes[3];
  std::uint64_t strides[2];  ///< in bytes, of all dimensions but the innermost
};
inline TmaTensor make_tma_tensor(const void* at, std::int64_t batches, std::int64_t seq,
                                 std::int64_t columns) {
  const auto length = static_cast<std::uint64_t>(columns), rows = static_cast<std::uint64_t>(seq);
  return {at, {length, rows, static_cast<std::uint64_t>(batches)}, {length * 2, rows * length * 2}};
}

/// Two mbarriers alternate to signal that a group of boxes has arrived. A barrier's phase completes when its
/// one arrival and all of its bytes have come; waits test the parity of that phase.
struct PipelineState {
  unsigned group;
  STRATA_HD unsigned index() const { return group % 2; }
  STRATA_HD unsigned parity() const { return group / 2 % 2; }
};

/// The coordinates of a box's first element.
struct BoxCoord {
  int column, row, batch;
};

#ifdef __CUDACC__

/// The tensor maps passed to a kernel, indexed by TmaOperand. `Map` is CUtensorMap.
template <class Map>
struct TensorMaps {
  Map values[2];
};

/// Waits until the phase of that parity has completed.
__device__ __forceinline__ void wait_for_barrier(unsigned barrier, unsigned parity) {
  for (unsigned is_complete = 0; is_complete == 0;)
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(is_complete)
        : "r"(barrier), "r"(parity)
        : "memory");
}

/// Starts loading kCount boxes whose bytes count at `barrier`: box(i, to) sets the destination and returns
/// the coordinates.
template <int kCount, class T, class Map, class Box>
__device__ __forceinline__ void load_boxes(const TensorMaps<Map>& maps, TmaOperand matrix, unsigned barrier,
                                           const Box& box) {
  unrolled<kCount>([&](int i) {
    T* to;
    const BoxCoord at = box(i, to);
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(&maps.values[static_cast<int>(matrix)]), "r"(at.column), "r"(at.row), "r"(at.batch), "r"(barrier)
        : "memory");
  });
}

/// A block whose operands are loaded by TMA.
template <int kWarps, class Map>
struct BlockTmaWarps : BlockWarps<kWarps> {
  static constexpr int kBarrierBytes = 16;

  /// `barrier_storage`: kBarrierBytes of shared memory. `matrices`: must be a kernel parameter.
  __device__ BlockTmaWarps(std::byte* barrier_storage, const TensorMaps<Map>& matrices)
      : maps(matrices), barriers(static_cast<unsigned>(__cvta_generic_to_shared(barrier_storage))) {
    if (is_leader()) {
      for (int i = 0; i < 2; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + i * 8) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }
  /// Starts loading kCount boxes in the current group.
  template <int kCount, class T, class Box>
  __device__ __forceinline__ void tma_load(TmaOperand matrix, const Box& box) const {
    if (is_leader()) {
      const unsigned barrier = barrier_of({groups});
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier),
                   "n"(kCount * TmaTensor::kBoxBytes)
                   : "memory");
      load_boxes<kCount, T>(maps, matrix, barrier, box);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void commit_group() const {
    if (is_leader())
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier_of({groups})) : "memory");
    __syncwarp();
    ++groups;
  }
  /// As BlockWarps::wait_group(). Every group must be waited for in order, except those still pending at the
  /// end.
  template <int kLeft>
  __device__ __forceinline__ void wait_group() const {
    const PipelineState awaited{groups - 1 - kLeft};
    wait_for_barrier(barrier_of(awaited), awaited.parity());
    __syncthreads();
  }

 private:
  __device__ __forceinline__ unsigned barrier_of(PipelineState state) const {
    return barriers + state.index() * 8;
  }
  static __device__ __forceinline__ bool is_leader() { return threadIdx.x == 0; }

  const TensorMaps<Map>& maps;
  unsigned barriers;
  mutable unsigned groups = 0;
};

#endif

}  // namespace strata::kernels::detail
