#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata::detail {

/// The checksums of objects in transfer, by request. That of an object is composed of those of its blocks, in
/// any order, which the I/O threads compute while the device works on other blocks. I/O threads call
/// add_block() with no lock held; the lock of the IoBackend orders its calls between begin() and of_object().
class ObjectChecksums {
 public:
  explicit ObjectChecksums(std::uint32_t max_requests) : objects_(max_requests) {}

  /// Called before each transfer of an object, also before it is transferred again.
  void begin(std::uint32_t index, std::span<const std::byte> object) noexcept;
  void add_block(std::uint32_t index, std::size_t at, std::size_t bytes) noexcept;
  /// The crc32c of the object, seeded with id and generation. Requires that all its blocks were added.
  std::uint32_t of_object(std::uint32_t index, std::uint64_t id, std::uint64_t generation) const noexcept;
  /// Ends all access to objects: their owners may free them although blocks may still arrive.
  void abandon() noexcept { abandoned_.store(true, std::memory_order_relaxed); }

 private:
  struct Object {
    std::span<const std::byte> bytes;
    std::atomic<std::uint32_t> checksum{0};  // xor of the blocks' shifted crcs
  };
  std::vector<Object> objects_;
  std::atomic<bool> abandoned_{false};  // relaxed: late blocks are at least a deadline late
};

}  // namespace strata::detail
