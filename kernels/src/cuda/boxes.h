#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/warps.h"

/// Rows of heads as the tensor memory accelerator (TMA, of compute capability 9.0) brings them: one thread
/// asks for boxes of 64 tokens by 64 columns, which arrive swizzled, as wgmma reads them, with zeros past the
/// sequence. On the host a box is brought by the books, piece by piece, as in warps.h.
namespace strata::kernels::detail {

/// What a head's rows are columns of.
enum class Matrix { qkv, dout };

/// A matrix of 16-bit values, [batches, seq, columns], as the driver is told of it: the innermost first. It
/// and its rows begin at multiples of 16 bytes.
struct BoxedMatrix {
  static constexpr std::uint32_t kBox[3] = {64, 64, 1};
  static constexpr int kBoxBytes = 64 * 64 * 2;
  const void* at;
  std::uint64_t sizes[3];
  std::uint64_t strides[2];  ///< in bytes, of all but the innermost
};
inline BoxedMatrix boxed(const void* at, std::int64_t batches, std::int64_t seq, std::int64_t columns) {
  const auto length = static_cast<std::uint64_t>(columns), rows = static_cast<std::uint64_t>(seq);
  return {at, {length, rows, static_cast<std::uint64_t>(batches)}, {length * 2, rows * length * 2}};
}

/// Two barriers tell in turn when a group of boxes has arrived. A barrier's phase ends when its one arrival
/// has come, and its bytes have; it is awaited by the phase's parity.
struct GroupBarrier {
  unsigned group;
  STRATA_HD unsigned which() const { return group % 2; }
  STRATA_HD unsigned parity() const { return group / 2 % 2; }
};

/// The first element of a box.
struct BoxAt {
  int column, row, batch;
};

#ifdef __CUDACC__

/// What a kernel is given, qkv's first. `Map` is CUtensorMap.
template <class Map>
struct MapsOf {
  Map of[2];
};

/// Warps whose operands come by TMA.
template <int kWarps, class Map>
struct BlockWithBoxes : BlockWarps<kWarps> {
  static constexpr int kArrivalBytes = 16;

  /// `arrivals`: kArrivalBytes of shared memory; `matrices`: in the kernel's parameters.
  __device__ BlockWithBoxes(std::byte* arrivals, const MapsOf<Map>& matrices)
      : maps(matrices), barriers(static_cast<unsigned>(__cvta_generic_to_shared(arrivals))) {
    if (is_leader()) {
      for (int i = 0; i < 2; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + i * 8) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }
  /// kCount boxes are on their way with the group at hand: box(i) says where to and of which elements.
  template <int kCount, class T, class Box>
  __device__ __forceinline__ void boxes(Matrix matrix, const Box& box) const {
    if (is_leader()) {
      const unsigned barrier = barrier_of({groups});
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier),
                   "n"(kCount * BoxedMatrix::kBoxBytes)
                   : "memory");
      unrolled<kCount>([&](int i) {
        T* to;
        const BoxAt at = box(i, to);
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
            "l"(&maps.of[static_cast<int>(matrix)]), "r"(at.column), "r"(at.row), "r"(at.batch), "r"(barrier)
            : "memory");
      });
    }
    __syncwarp();
  }
  __device__ __forceinline__ void end_group() const {
    if (is_leader())
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier_of({groups})) : "memory");
    __syncwarp();
    ++groups;
  }
  /// As of BlockWarps. Every group but those that are left at the end is awaited in its turn.
  template <int kLeft>
  __device__ __forceinline__ void await() const {
    const GroupBarrier awaited{groups - 1 - kLeft};
    for (unsigned has_come = 0; has_come == 0;)
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(has_come)
          : "r"(barrier_of(awaited)), "r"(awaited.parity())
          : "memory");
    __syncthreads();
  }

 private:
  __device__ __forceinline__ unsigned barrier_of(GroupBarrier of) const { return barriers + of.which() * 8; }
  static __device__ __forceinline__ bool is_leader() { return threadIdx.x == 0; }

  const MapsOf<Map>& maps;
  unsigned barriers;
  mutable unsigned groups = 0;
};

#endif

/// Of the host, for one block. Shared memory begins at a multiple of 1,024 bytes.
template <int kWarps, bool kBackwards = false>
struct WarpsWithBoxes : WarpsInTurn<kWarps, kBackwards> {
  BoxedMatrix matrices[2];
  /// Whether an await named another group than the oldest that had not been awaited: a barrier tells of one.
  mutable bool skipped = false;

  template <int kCount, class T, class Box>
  void boxes(Matrix matrix, const Box& box) const {
    for (int i = 0; i < kCount; ++i) {
      T* to;
      const BoxAt at = box(i, to);
      bring(reinterpret_cast<std::uintptr_t>(to), matrices[static_cast<int>(matrix)], at);
    }
  }
  void end_group() const {
    WarpsInTurn<kWarps>::end_group();
    ++groups;
  }
  template <int kLeft>
  void await() const {
    skipped = skipped || groups - 1 - kLeft != awaited++;
    WarpsInTurn<kWarps>::template await<kLeft>();
  }

 private:
  mutable int groups = 0, awaited = 0;
  /// Rows of 128 bytes, one after the other; of an address bits 4-6 are changed where bits 7-9 are set
  /// (CU_TENSOR_MAP_SWIZZLE_128B).
  static void bring(std::uintptr_t to, const BoxedMatrix& from, const BoxAt& at) {
    for (std::uint32_t row = 0; row < BoxedMatrix::kBox[1]; ++row)
      for (std::uint32_t piece = 0; piece < BoxedMatrix::kBox[0] / 8; ++piece) {
        const std::uintptr_t plain = to + row * 128 + piece * 16;
        const std::uint64_t place[] = {static_cast<std::uint64_t>(at.column) + piece * 8,
                                       static_cast<std::uint64_t>(at.row) + row,
                                       static_cast<std::uint64_t>(at.batch)};
        bool there = true;
        for (int i = 0; i < 3; ++i) there = there && place[i] < from.sizes[i];
        const std::uint64_t offset = place[0] * 2 + place[1] * from.strides[0] + place[2] * from.strides[1];
        WarpsInTurn<kWarps>::copy(reinterpret_cast<void*>(plain ^ (plain >> 7 & 7) << 4),
                                  static_cast<const std::byte*>(from.at) + (there ? offset : 0), there);
      }
  }
};

}  // namespace strata::kernels::detail
