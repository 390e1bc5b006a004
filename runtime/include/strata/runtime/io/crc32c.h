#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace strata {

/// CRC-32C (Castagnoli; RFC 3720 B.4) of `bytes`, continuing from `seed`: crc32c(crc32c(0, a), b) is the
/// checksum of a followed by b. A seed of 0 starts a new checksum.
std::uint32_t crc32c(std::uint32_t seed, std::span<const std::byte> bytes) noexcept;

/// The seed for checksums of generation `generation` of object `id`. A block that belongs to another object,
/// or an older one in the same place, then has a wrong checksum although its bytes are intact.
std::uint32_t crc32c_seed(std::uint64_t id, std::uint64_t generation) noexcept;

/// The contribution of checksum `crc` after `bytes` more bytes: crc32c(s, ab) == crc32c_shift(crc32c(s, a),
/// |b|) ^ crc32c(0, b). It is linear, so the parts may be checksummed in any order and combined by xor.
std::uint32_t crc32c_shift(std::uint32_t crc, std::uint64_t bytes) noexcept;

}  // namespace strata
