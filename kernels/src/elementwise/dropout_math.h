#pragma once

#include <cmath>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/runtime/float16.h>

/// The arithmetic of dropout on host and device.
namespace strata::kernels::detail {

/// Bits below this drop an element.
inline std::uint32_t drop_below(float p) noexcept {
  return static_cast<std::uint32_t>(std::floor(static_cast<double>(p) * 4294967296.0));
}
/// The factor of the elements that are kept.
inline float keep_factor(float p) noexcept {
  return static_cast<float>(1.0 / (1.0 - static_cast<double>(p)));
}

/// Four random words of elements [4 group, 4 group + 4) of a row: philox() of strata/runtime/rng.h, which
/// nvcc does not compile for the device.
struct DropoutWords {
  std::uint32_t word[4];
};
STRATA_HD DropoutWords dropout_words(std::uint32_t key0, std::uint32_t key1, std::uint32_t group,
                                     std::uint32_t stream) {
  std::uint32_t c0 = group, c1 = 0, c2 = stream, c3 = 0, k0 = key0, k1 = key1;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// The result for an element with these bits.
template <class T>
STRATA_HD T dropped(T x, std::uint32_t bits, std::uint32_t below, float factor) {
  return from_f32<T>(bits < below ? 0.0f : to_f32(x) * factor);
}

}  // namespace strata::kernels::detail
