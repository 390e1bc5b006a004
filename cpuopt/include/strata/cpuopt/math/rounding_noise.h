#pragma once

#include <cstdint>

#include <strata/simd/math/host_device.h>

namespace strata::cpuopt {

/// Key of the random bits for the stochastic rounding of one tensor in one step. The bits are a pure function
/// of this key and the element's index in the tensor, so they do not depend on chunks, threads or ranks.
/// Created by rounding_noise().
struct RoundingNoise {
  std::uint32_t add = 0, mix = 0;
};

/// 32 random bits of the element `i` (the low 32 bits of its index; the high ones are in the key): two rounds
/// of multiply and xor-shift with the constants of Wellons' "lowbias32" (2018), with a word of the key added
/// before each. U is a 32-bit unsigned integer or a SIMD value with its operators.
template <class U>
STRATA_HD U noise_bits(U i, U add, U mix) {
  U x = i * U(0x9E3779B9u) + add;
  x = (x ^ (x >> 16)) * U(0x7FEB352Du);
  x = (x ^ (x >> 15)) + mix;
  x = x * U(0x846CA68Bu);
  return x ^ (x >> 16);
}

/// u - 1/2, where u is the midpoint of the interval with number `part` of 32,768 equal intervals of [0, 1).
/// An integer of up to 255 is unchanged if this is added and the sum is rounded to nearest; with more
/// intervals the last one would produce a tie in f32.
template <class V>
STRATA_HD V noise_offset(V part) {
  return (part - V(16383.5f)) * V(1.0f / 32768.0f);
}

}  // namespace strata::cpuopt
