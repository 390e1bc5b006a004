#pragma once

#include <strata/cpuopt/master.h>
#include <strata/simd/simd.h>

// For SIMD kernels: load and store the 16 or 32 masters from element i on, in each layout. finish() must be
// called after the last store_32() and before another thread reads the result.

namespace strata::cpuopt::STRATA_ISA {

using namespace simd::STRATA_ISA;

template <MasterLayout kLayout>
struct Masters;

template <>
struct Masters<MasterLayout::f32> {
  float* param;
  Masters(void* param_at, void*) : param(static_cast<float*>(param_at)) {}
  STRATA_LANES_INLINE f32x32 load_32(std::int64_t i) const { return f32x32::load(param + i); }
  STRATA_LANES_INLINE void store_32(std::int64_t i, const f32x32& x) const { x.store(param + i); }
  STRATA_LANES_INLINE void finish() const {}
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
  STRATA_LANES_INLINE f32x32 load_32(std::int64_t i) const { return f32x32::load_master(high + i, low + i); }
  STRATA_LANES_INLINE void store_32(std::int64_t i, const f32x32& x) const {
    x.store_master(high + i, low + i);
  }
  STRATA_LANES_INLINE void finish() const {}
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
  // The shadow is written and not read, so it is written with non-temporal stores if it is aligned to cache
  // lines.
  STRATA_LANES_INLINE bool streams() const { return reinterpret_cast<std::uintptr_t>(shadow) % 64 == 0; }
  STRATA_LANES_INLINE void store_32(std::int64_t i, const f32x32& x) const {
    x.store(master + i);
    if (streams())
      x.stream(shadow + i);
    else
      x.store(shadow + i);
  }
  STRATA_LANES_INLINE void finish() const {
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

/// The gradient's type if it is stored in the dtype of the parameter.
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
