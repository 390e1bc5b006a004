#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace strata {

/// Philox4x32-10 (Salmon et al., SC'11, "Parallel random numbers: as easy as 1, 2, 3"): a pure function from
/// (key, counter) to four 32-bit words, so that an element's random number depends only on its coordinates.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// A counter-based generator: `(seed, stream)` selects a sequence and `index` a position in it. It has no
/// mutable state, so reading element i gives the same number in any order and on any thread.
class Rng {
 public:
  constexpr Rng(std::uint64_t seed, std::uint64_t stream) noexcept : seed_(seed), stream_(stream) {}
  constexpr std::uint32_t u32(std::uint64_t index) const noexcept { return block(index >> 2)[index & 3]; }
  constexpr std::uint64_t u64(std::uint64_t index) const noexcept {
    return (std::uint64_t{u32(2 * index + 1)} << 32) | u32(2 * index);
  }
  /// Uniform in [0, bound), with a bias of at most 2^-64 x bound. Requires bound > 0.
  constexpr std::uint64_t below(std::uint64_t index, std::uint64_t bound) const noexcept {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(u64(index)) * bound) >> 64);
  }
  /// Uniform in [0, 1) with 24 random bits.
  constexpr float uniform(std::uint64_t index) const noexcept {
    return static_cast<float>(u32(index) >> 8) * 0x1.0p-24f;
  }
  /// Standard normal by the Box-Muller transform, computed in double and rounded once.
  float normal(std::uint64_t index) const noexcept {
    const auto b = block(index);
    const double u1 = (static_cast<double>(b[0]) + 1.0) * 0x1.0p-32;
    const double u2 = static_cast<double>(b[1]) * 0x1.0p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u1)) * std::cos(6.283185307179586 * u2));
  }

 private:
  constexpr std::array<std::uint32_t, 4> block(std::uint64_t i) const noexcept {
    return philox({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32),
                   static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                  {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  }
  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace strata
