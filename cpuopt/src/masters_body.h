#pragma once

#include <strata/cpuopt/master.h>
#include <strata/cpuopt/simd.h>

// For bodies: the 16 masters from element i on, by layout. store_32() is called for 0, 32, ..., and what it
// was given is in memory after finish(), which is told where it ended.

namespace strata::cpuopt::STRATA_ISA {

/// Brings the line that lies kPrefetchBytes past `p` near. For the layout with the most streams alone: with
/// fewer the hardware follows them all, and asking as well as it took the f32 step a quarter longer.
inline constexpr std::uintptr_t kPrefetchBytes = 2048;
STRATA_LANES_INLINE inline void prefetch_past(const void* p) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) + kPrefetchBytes));
}

template <MasterLayout kLayout>
struct Masters;

template <>
struct Masters<MasterLayout::f32> {
  float* param;
  Masters(void* param_at, void*) : param(static_cast<float*>(param_at)) {}
  STRATA_LANES_INLINE f32x32 load_32(std::int64_t i) const { return f32x32::load(param + i); }
  STRATA_LANES_INLINE void store_32(std::int64_t i, const f32x32& x) const { x.store(param + i); }
  STRATA_LANES_INLINE void finish(std::int64_t) const {}
  STRATA_LANES_INLINE f32x16 load(std::int64_t i, int lanes) const { return load_lanes(param + i, lanes); }
  STRATA_LANES_INLINE void store(std::int64_t i, const f32x16& x, int lanes) const {
    store_lanes(param + i, x, lanes);
  }
};

template <>
struct Masters<MasterLayout::bf16_split> {
  bf16* high;
  std::uint16_t* low;
  Masters(void* param_at, void* master_at)
      : high(static_cast<bf16*>(param_at)), low(static_cast<std::uint16_t*>(master_at)) {}
  STRATA_LANES_INLINE f32x32 load_32(std::int64_t i) const {
    prefetch_past(high + i);
    prefetch_past(low + i);
    return f32x32::load_master(high + i, low + i);
  }
  // Taken apart and written kBehind elements later: a processor sees so many instructions ahead, and in those
  // of one update alone it mostly waits for the root and the quotient.
  static constexpr std::int64_t kBehind = 128;
  alignas(64) float waiting[kBehind];
  STRATA_LANES_INLINE void store_32(std::int64_t i, const f32x32& x) {
    float* const place = waiting + i % kBehind;
    if (i >= kBehind) f32x32::load(place).store_master(high + i - kBehind, low + i - kBehind);
    x.store(place);
  }
  STRATA_LANES_INLINE void finish(std::int64_t end) const {
    for (std::int64_t i = end > kBehind ? end - kBehind : 0; i < end; i += 32)
      f32x32::load(waiting + i % kBehind).store_master(high + i, low + i);
  }
  STRATA_LANES_INLINE f32x16 load(std::int64_t i, int lanes) const {
    return lanes == 16 ? f32x16::load_master(high + i, low + i)
                       : f32x16::load_first_master(high + i, low + i, lanes);
  }
  STRATA_LANES_INLINE void store(std::int64_t i, const f32x16& x, int lanes) const {
    if (lanes == 16)
      x.store_master(high + i, low + i);
    else
      x.store_first_master(high + i, low + i, lanes);
  }
};

template <class T>
struct ShadowedMasters {
  T* shadow;
  float* master;
  ShadowedMasters(void* param_at, void* master_at)
      : shadow(static_cast<T*>(param_at)), master(static_cast<float*>(master_at)) {}
  STRATA_LANES_INLINE f32x32 load_32(std::int64_t i) const { return f32x32::load(master + i); }
  // The shadow is written and not read: where its lines are whole, it goes past the caches.
  STRATA_LANES_INLINE bool streams() const { return reinterpret_cast<std::uintptr_t>(shadow) % 64 == 0; }
  STRATA_LANES_INLINE void store_32(std::int64_t i, const f32x32& x) const {
    x.store(master + i);
    if (streams())
      x.stream(shadow + i);
    else
      x.store(shadow + i);
  }
  STRATA_LANES_INLINE void finish(std::int64_t) const {
    if (streams()) Register::fence_streams();
  }
  STRATA_LANES_INLINE f32x16 load(std::int64_t i, int lanes) const { return load_lanes(master + i, lanes); }
  STRATA_LANES_INLINE void store(std::int64_t i, const f32x16& x, int lanes) const {
    store_lanes(master + i, x, lanes);
    store_lanes(shadow + i, x, lanes);
  }
};
template <>
struct Masters<MasterLayout::bf16_shadow> : ShadowedMasters<bf16> {
  using ShadowedMasters::ShadowedMasters;
};
template <>
struct Masters<MasterLayout::f16_shadow> : ShadowedMasters<f16> {
  using ShadowedMasters::ShadowedMasters;
};

/// What the gradient is where it is as narrow as the parameter.
template <MasterLayout kLayout>
struct NarrowOf {
  using Type = bf16;
};
template <>
struct NarrowOf<MasterLayout::f32> {
  using Type = float;
};
template <>
struct NarrowOf<MasterLayout::f16_shadow> {
  using Type = f16;
};

}  // namespace strata::cpuopt::STRATA_ISA
