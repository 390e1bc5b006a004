#pragma once

// The Register of simd.h for the scalar set: one float.
#ifndef STRATA_ISA
#error "strata/simd/simd_scalar.h is a part of strata/simd/simd.h"
#endif

#include <cstdint>

#include <strata/simd/math/elementary.h>
#include <strata/simd/math/host_device.h>
#include <strata/simd/math/master.h>
#include <strata/runtime/float16.h>

namespace strata::simd::STRATA_ISA {

struct Register {
  using Part = float;
  using Bits = std::uint32_t;
  static constexpr int kLanes = 1;
  static STRATA_HD Bits bits_of(Part x) { return __builtin_bit_cast(Bits, x); }
  static STRATA_HD Part float_of(Bits x) { return __builtin_bit_cast(Part, x); }
  static STRATA_HD Bits broadcast(std::uint32_t x) { return x; }
  static STRATA_HD Bits counting() { return 0; }
  static STRATA_HD Bits max(Bits a, Bits b) { return a > b ? a : b; }
  static STRATA_HD Bits load_bytes(const std::uint8_t* p) { return *p; }
  static STRATA_HD void store_bytes(std::uint8_t* p, Bits x) { *p = static_cast<std::uint8_t>(x); }
  static STRATA_HD void store_halves(void* p, Bits x) {
    const auto half = static_cast<std::uint16_t>(x);
    __builtin_memcpy(p, &half, sizeof half);
  }
  static STRATA_HD Part broadcast(float x) { return x; }
  static STRATA_HD Part multiply_add(Part x, Part y, Part z) { return __builtin_fmaf(x, y, z); }
  template <class T>
  static STRATA_HD Part load(const T* p) {
    return to_f32(*p);
  }
  template <class T>
  static STRATA_HD void store(T* p, Part x) {
    *p = from_f32<T>(x);
  }
  static STRATA_HD Part load_master(const bf16* high, const std::uint16_t* low) {
    return join_master(*high, *low);
  }
  static STRATA_HD void store_master(bf16* high, std::uint16_t* low, Part x) {
    const SplitMaster split = split_master(x);
    *high = split.high;
    *low = split.low;
  }
  static STRATA_HD Part quiet_nan(Part x) { return x == x ? x : float_of(0x7FC00000u); }
  template <class T>
  static STRATA_HD void load_two(const T* p, Part& a, Part& b) {
    a = load(p);
    b = load(p + 1);
  }
  template <class T>
  static STRATA_HD void store_two(T* p, Part a, Part b) {
    store(p, a);
    store(p + 1, b);
  }
  template <class T>
  static STRATA_HD void stream_two(T* p, Part a, Part b) {
    store_two(p, a, b);
  }
  static STRATA_HD void fence_streams() {}
  static STRATA_HD void load_two_masters(const bf16* high, const std::uint16_t* low, Part& a, Part& b) {
    a = load_master(high, low);
    b = load_master(high + 1, low + 1);
  }
  static STRATA_HD void store_two_masters(bf16* high, std::uint16_t* low, Part a, Part b) {
    store_master(high, low, a);
    store_master(high + 1, low + 1, b);
  }
  static STRATA_HD Part sqrt(Part x) { return sqrt_of(x); }
  static STRATA_HD Part select_greater(Part a, Part b, Part x, Part y) {
    return simd::select_greater(a, b, x, y);
  }
  static STRATA_HD Part pow2_of_rounded(Part t) { return simd::pow2_of_rounded(t); }
};

}  // namespace strata::simd::STRATA_ISA
