#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace strata {

/// CRC-32C (Castagnoli; RFC 3720 B.4) of `bytes`, continuing from `seed`: crc32c(crc32c(0, a), b) is the sum
/// of a then b, and a seed of 0 is the plain sum. Uses the CPU's instruction where it has one.
std::uint32_t crc32c(std::uint32_t seed, std::span<const std::byte> bytes) noexcept;

/// The seed under which generation `generation` of object `id` is summed: a block that belongs to another
/// object, or an older one in the same place, has a different sum although its bytes are whole.
std::uint32_t crc32c_seed(std::uint64_t id, std::uint64_t generation) noexcept;

/// The sum `crc` would contribute were `bytes` more bytes to follow: crc32c(s, ab) ==
/// crc32c_shift(crc32c(s, a), |b|) ^ crc32c(0, b). Linear, so the parts may be summed in any order and joined
/// by xor.
std::uint32_t crc32c_shift(std::uint32_t crc, std::uint64_t bytes) noexcept;

namespace detail {
std::uint32_t crc32c_portable(std::uint32_t seed, std::span<const std::byte> bytes) noexcept;
/// The CPU's instruction. Only where crc32c_has_hardware().
std::uint32_t crc32c_hardware(std::uint32_t seed, std::span<const std::byte> bytes) noexcept;
bool crc32c_has_hardware() noexcept;
}  // namespace detail
}  // namespace strata
