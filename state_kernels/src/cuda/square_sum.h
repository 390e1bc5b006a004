#pragma once

#include <cstdint>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/dispatch/cuda/packs.h>
#include <strata/runtime/float16.h>
#include <strata/simd/norm.h>

namespace strata::state_kernels::detail {

/// The sum of exact squares that is one partial of the gradient norm (simd/norm.h). `Lanes` is HalfWarp, or
/// EmulatedHalfWarp in tests.
template <class Lanes, class T>
STRATA_DEVICE_INLINE double square_sum(const Lanes& lanes, const T* x, std::int64_t n) {
  return lanes.template sum<double>(n, [&](std::int64_t i) {
    return static_cast<double>(to_f32(x[i])) * static_cast<double>(to_f32(x[i]));
  });
}

/// Partials that a block of threads stages in shared memory, so that what its half warps read of them in the
/// order of their lanes comes from memory at once, by packs.
template <class T>
struct PartialStage {
  static constexpr int kBytes = 32 << 10, kThreads = 128,
                       kPartials = kBytes / static_cast<int>(simd::kNormPartialElems * sizeof(T)),
                       // Two half warps read two partials at once; the padding gives them different banks.
      kStride = static_cast<int>(simd::kNormPartialElems) + dispatch::kLanes;
  static_assert(kPartials * dispatch::kLanes <= kThreads);
  alignas(16) T at[kPartials * kStride];
};

/// What thread `thread` copies to the stage: `n` elements at most, those of kPartials partials.
template <class T>
STRATA_DEVICE_INLINE void stage_partials(int thread, const T* from, std::int64_t n, bool is_aligned,
                                         PartialStage<T>& to) {
  using Stage = PartialStage<T>;
  using Pack = dispatch::Pack<T>;
  constexpr int kAll = Stage::kPartials * static_cast<int>(simd::kNormPartialElems), kBatch = 8,
                kApart = Stage::kThreads * Pack::kSize;
  const auto staged = [&](int i) {
    constexpr int kElems = static_cast<int>(simd::kNormPartialElems);
    return to.at + i / kElems * Stage::kStride + i % kElems;
  };
  if (!is_aligned || n < kAll) {
    const int end = n < kAll ? static_cast<int>(n) : kAll;
    for (int i = thread; i < end; i += Stage::kThreads) *staged(i) = from[i];
    return;
  }
  static_assert(kAll % (kBatch * kApart) == 0);
  for (int first = thread * Pack::kSize; first < kAll; first += kBatch * kApart) {
    Pack packs[kBatch];
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int i = 0; i < kBatch; ++i) packs[i] = dispatch::load_pack(from + first + i * kApart);
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int i = 0; i < kBatch; ++i) dispatch::store_pack(staged(first + i * kApart), packs[i]);
  }
}

}  // namespace strata::state_kernels::detail
