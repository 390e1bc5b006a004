// For CPUs without a CRC-32C instruction that strata uses.
#include <strata/runtime/io/crc32c.h>

namespace strata::detail {

bool crc32c_has_hardware() noexcept { return false; }
std::uint32_t crc32c_hardware(std::uint32_t seed, std::span<const std::byte> bytes) noexcept {
  return crc32c_portable(seed, bytes);
}

}  // namespace strata::detail
