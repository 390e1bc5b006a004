#pragma once

#include <cstdint>

#include <strata/cpuopt/math/host_device.h>

namespace strata::cpuopt {

/// Randomness of one tensor in one step: a pure function of the element's index in the tensor, so that
/// neither chunks nor threads nor ranks change what an element draws. Made by rounding_noise().
struct RoundingNoise {
  std::uint32_t add = 0, mix = 0;
};

/// 32 bits for the element `i` (the low 32 bits of its index; the high ones are in the key): two rounds of
/// multiply and xor-shift with the constants of Wellons' "lowbias32" (2018), the key entering before each.
/// U is a 32-bit unsigned integer or a SIMD value with its operators.
template <class U>
STRATA_HD U noise_bits(U i, U add, U mix) {
  U x = i * U(0x9E3779B9u) + add;
  x = (x ^ (x >> 16)) * U(0x7FEB352Du);
  x = (x ^ (x >> 15)) + mix;
  x = x * U(0x846CA68Bu);
  return x ^ (x >> 16);
}

/// u - 1/2, u being the middle of one of 32,768 equal parts of [0, 1), for the part's number as a float. What
/// is whole, up to 255, stays itself when this is added and the sum rounded to the nearest: of more parts the
/// last would meet a tie in f32.
template <class V>
STRATA_HD V noise_offset(V part) {
  return (part - V(16383.5f)) * V(1.0f / 32768.0f);
}

}  // namespace strata::cpuopt
