#include "store/object_checksums.h"

#include <strata/runtime/io/crc32c.h>

namespace strata::detail {

void ObjectChecksums::begin(std::uint32_t index, std::span<const std::byte> object) noexcept {
  objects_[index].bytes = object;
  objects_[index].checksum.store(0, std::memory_order_relaxed);
}

void ObjectChecksums::add_block(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept {
  if (abandoned_.load(std::memory_order_relaxed)) return;
  Object& object = objects_[index];
  const std::uint32_t checksum = crc32c(0, object.bytes.subspan(at, bytes));
  object.checksum.fetch_xor(crc32c_shift(checksum, object.bytes.size() - at - bytes),
                            std::memory_order_relaxed);
}

std::uint32_t ObjectChecksums::of_object(std::uint32_t index, std::uint64_t id,
                                         std::uint64_t generation) const noexcept {
  const Object& object = objects_[index];
  const std::uint32_t seed = crc32c_seed(id, generation);
  return crc32c_shift(seed, object.bytes.size()) ^ object.checksum.load(std::memory_order_relaxed);
}

}  // namespace strata::detail
