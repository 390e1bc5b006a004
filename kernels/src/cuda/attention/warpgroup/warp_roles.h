#pragma once

#include <cstddef>
#include <cstdint>

#include <strata/simd/math/host_device.h>

#include "cuda/attention/warpgroup/tma.h"

/// A block of a producer, one thread that loads operands by TMA, and of two warpgroups of consumers that
/// multiply them (warp specialization, as in FlashAttention-3; Shah et al. 2024, arXiv 2407.08608). They meet
/// at mbarriers alone: a full barrier completes when a stage's bytes have arrived, an empty one when all
/// warps of the consumers are done with it. BlockWarpRoles is such a block on the device, EmulatedWarpRoles
/// one on the host (emulation/warp_roles.h).
namespace strata::kernels::detail {

inline constexpr int kConsumerGroups = 2, kConsumerWarps = 4 * kConsumerGroups;

/// The mbarriers of a block by their number: kFull of them are completed by loads, kEmpty by consumers.
template <int kFullBarriers, int kEmptyBarriers>
struct RoleBarriers {
  static constexpr int kFull = kFullBarriers, kEmpty = kEmptyBarriers, kCount = kFull + kEmpty;
  /// Arrivals that complete a phase, beside the bytes.
  static STRATA_HD constexpr int arrivals(int barrier) { return barrier < kFull ? 1 : kConsumerWarps; }
};

#ifdef __CUDACC__

/// The thread that loads.
template <class Map>
struct DeviceProducer {
  const TensorMaps<Map>& maps;
  unsigned barriers;

  /// Loads whose bytes, with one arrival, complete a full barrier.
  struct Loads {
    const TensorMaps<Map>& maps;
    unsigned barrier;
    template <int kBoxes, class T, class Box>
    __device__ __forceinline__ void tma_load(TmaOperand matrix, const Box& box) const {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "n"(kBoxes * TmaTensor::kBoxBytes)
                   : "memory");
      load_boxes<kBoxes, T>(maps, matrix, barrier, box);
    }
  };
  __device__ __forceinline__ Loads completing(int barrier) const {
    return {maps, barriers + static_cast<unsigned>(barrier) * 8};
  }
  __device__ __forceinline__ void wait(int barrier, unsigned parity) const {
    wait_for_barrier(barriers + static_cast<unsigned>(barrier) * 8, parity);
  }
};

/// A warpgroup of consumers, seen from one of its threads.
struct DeviceConsumers {
  unsigned barriers;
  template <class V>
  using State = V;

  /// 0 or 1.
  __device__ __forceinline__ int index() const { return static_cast<int>(threadIdx.x) / 128 - 1; }
  /// Calls f(warp, index among the warps of both groups, its part of the state).
  template <class V, class F>
  __device__ __forceinline__ void for_each_warp(V& state, const F& f) const {
    const int thread = static_cast<int>(threadIdx.x);
    f(DeviceWarp{thread % 32}, thread / 32 - 4, state);
  }
  __device__ __forceinline__ void wait(int barrier, unsigned parity) const {
    wait_for_barrier(barriers + static_cast<unsigned>(barrier) * 8, parity);
  }
  /// Each warp arrives at an empty barrier.
  __device__ __forceinline__ void arrive(int barrier) const {
    if (threadIdx.x % 32 == 0)
      asm volatile(
          "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barriers + static_cast<unsigned>(barrier) * 8)
          : "memory");
    __syncwarp();
  }
  /// The groups take turns: each waits for the other to pass the turn, at the named barrier 1 or 2.
  __device__ __forceinline__ void wait_turn() const {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + index()) : "memory");
  }
  __device__ __forceinline__ void pass_turn() const {
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - index()) : "memory");
  }
};

/// `Barriers`: a RoleBarriers.
template <class Barriers, class Map>
struct BlockWarpRoles {
  static constexpr int kThreads = 128 * (1 + kConsumerGroups),
                       kBarrierBytes = 16 * ((Barriers::kCount + 1) / 2);

  /// `barrier_storage`: kBarrierBytes of shared memory. `matrices`: must be a kernel parameter.
  __device__ BlockWarpRoles(std::byte* barrier_storage, const TensorMaps<Map>& matrices)
      : maps(matrices), barriers(static_cast<unsigned>(__cvta_generic_to_shared(barrier_storage))) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Barriers::kCount; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barriers + i * 8),
                     "r"(Barriers::arrivals(i))
                     : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }
  /// The loading thread needs few registers: what its warpgroup gives back lets each consumer have 240 of the
  /// 168 that the block begins with.
  template <class Produce, class Consume>
  __device__ __forceinline__ void run(const Produce& produce, const Consume& consume) const {
    if (threadIdx.x < 128) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (threadIdx.x == 0) produce(DeviceProducer<Map>{maps, barriers});
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
      consume(DeviceConsumers{barriers});
    }
  }

 private:
  const TensorMaps<Map>& maps;
  unsigned barriers;
};

#endif

}  // namespace strata::kernels::detail
