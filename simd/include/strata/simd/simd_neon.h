#pragma once

// The Register of simd.h for NEON on AArch64. It uses the compiler's vector types and not xsimd, whose f32
// division and square root on NEON are refined estimates (8.1): their bits differ from IEEE 754's, which
// contract C1 forbids.
#ifndef STRATA_ISA_IS_neon
#error "strata/simd/simd_neon.h is the part of strata/simd/simd.h for NEON"
#endif

#include <arm_neon.h>

#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

namespace strata::simd::STRATA_ISA {

struct Register {
  using Part = float32x4_t;
  using Bits = uint32x4_t;
  static constexpr int kLanes = 4;
  static STRATA_HD Bits bits_of(Part x) { return vreinterpretq_u32_f32(x); }
  static STRATA_HD Part float_of(Bits x) { return vreinterpretq_f32_u32(x); }
  static STRATA_HD Part broadcast(float x) { return vdupq_n_f32(x); }
  static STRATA_HD Bits broadcast(std::uint32_t x) { return vdupq_n_u32(x); }
  static STRATA_HD Bits counting() { return Bits{0, 1, 2, 3}; }
  static STRATA_HD Bits max(Bits a, Bits b) { return vmaxq_u32(a, b); }
  static STRATA_HD Part multiply_add(Part x, Part y, Part z) { return vfmaq_f32(z, x, y); }
  static STRATA_HD Part sqrt(Part x) { return vsqrtq_f32(x); }
  static STRATA_HD Part select_greater(Part a, Part b, Part x, Part y) {
    return vbslq_f32(vcgtq_f32(a, b), x, y);
  }
  static STRATA_HD Part pow2_of_rounded(Part t) {
    return float_of(vshlq_n_u32(bits_of(t) + broadcast(127u), 23));
  }
  static STRATA_HD Part quiet_nan(Part x) {
    return vbslq_f32(vceqq_f32(x, x), x, float_of(broadcast(0x7FC00000u)));
  }

  static STRATA_HD Part load(const float* p) { return vld1q_f32(p); }
  static STRATA_HD void store(float* p, Part x) { vst1q_f32(p, x); }

  // 16-bit storage: the conversions of float16.h in each lane, with the same bits.
  static STRATA_HD Part load(const bf16* p) { return float_of(vshlq_n_u32(vmovl_u16(load_raw(p)), 16)); }
  static STRATA_HD void store(bf16* p, Part x) {
    const Bits bits = bits_of(x);
    const Bits rounded = bits + broadcast(0x7FFFu) + (vshrq_n_u32(bits, 16) & broadcast(1u));
    store_raw(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, bits | broadcast(0x400000u)), 16));
  }
  static STRATA_HD Part load(const f16* p) {
    const uint16x4_t raw = load_raw(p);
    const Part wide = vcvt_f32_f16(vreinterpret_f16_u16(raw));
    // The instruction sets the quiet bit of a NaN. The scalar conversion does not, so the bit is restored.
    const Bits quieted = vbicq_u32(broadcast(0x400000u), vshlq_n_u32(vmovl_u16(raw), 13));
    return vbslq_f32(vceqq_f32(wide, wide), wide, float_of(bits_of(wide) ^ quieted));
  }
  static STRATA_HD void store(f16* p, Part x) { store_raw(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
  static STRATA_HD Part load_master(const bf16* high, const std::uint16_t* low) {
    const Bits upper = vshlq_n_u32(vmovl_u16(load_raw(high)), 16);
    return vreinterpretq_f32_s32(
        vaddw_s16(vreinterpretq_s32_u32(upper), vreinterpret_s16_u16(load_raw(low))));
  }
  static STRATA_HD void store_master(bf16* high, std::uint16_t* low, Part x) {
    const Bits bits = bits_of(quiet_nan(x));
    store_raw(high, vshrn_n_u32(bits + broadcast(0x8000u), 16));
    store_raw(low, vmovn_u32(bits));
  }
  template <class T>
  static STRATA_HD void load_two(const T* p, Part& a, Part& b) {
    a = load(p);
    b = load(p + kLanes);
  }
  template <class T>
  static STRATA_HD void store_two(T* p, Part a, Part b) {
    store(p, a);
    store(p + kLanes, b);
  }
  template <class T>
  static STRATA_HD void stream_two(T* p, Part a, Part b) {
    store_two(p, a, b);
  }
  static STRATA_HD void fence_streams() {}
  static STRATA_HD void load_two_masters(const bf16* high, const std::uint16_t* low, Part& a, Part& b) {
    a = load_master(high, low);
    b = load_master(high + kLanes, low + kLanes);
  }
  static STRATA_HD void store_two_masters(bf16* high, std::uint16_t* low, Part a, Part b) {
    store_master(high, low, a);
    store_master(high + kLanes, low + kLanes, b);
  }
  static STRATA_HD void store_halves(void* p, Bits x) { store_raw(p, vmovn_u32(x)); }
  static STRATA_HD Bits load_bytes(const std::uint8_t* p) {
    std::uint32_t raw;
    __builtin_memcpy(&raw, p, sizeof raw);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(raw))));
  }
  static STRATA_HD void store_bytes(std::uint8_t* p, Bits x) {
    const uint16x4_t halves = vmovn_u32(x);
    const std::uint32_t raw = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(halves, halves))), 0);
    __builtin_memcpy(p, &raw, sizeof raw);
  }

 private:
  static STRATA_HD uint16x4_t load_raw(const void* p) {
    uint16x4_t x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  static STRATA_HD void store_raw(void* p, uint16x4_t x) { __builtin_memcpy(p, &x, sizeof x); }
};

}  // namespace strata::simd::STRATA_ISA
