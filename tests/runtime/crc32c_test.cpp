#include <strata/runtime/io/crc32c.h>

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include <strata/runtime/rng.h>

#include "support/memory_io.h"

namespace strata {
namespace {

using test::bytes_of;

std::vector<std::byte> random_bytes(std::size_t n, std::uint64_t seed) {
  const Rng rng(seed, 0);
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(rng.u32(i));
  return bytes;
}

TEST(Crc32cTest, KnownVectorsHold) {
  EXPECT_EQ(crc32c(0, bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(0, bytes_of("")), 0u);
  EXPECT_EQ(crc32c(0, std::vector<std::byte>(32, std::byte{0})), 0x8A9136AAu);     // RFC 3720 B.4
  EXPECT_EQ(crc32c(0, std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43u);  // RFC 3720 B.4
}

// One bit at a time, as the RFC defines it.
std::uint32_t by_bits(std::uint32_t seed, std::span<const std::byte> bytes) {
  std::uint32_t crc = ~seed;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

TEST(Crc32cTest, EveryLengthAndMisalignmentHasTheChecksumOfItsBits) {
  const std::vector<std::byte> bytes = random_bytes(40000, 7);
  for (const std::size_t n : {0, 1, 7, 8, 9, 255, 4096, 12287, 12288, 12289, 24576, 24583, 36900, 39990})
    for (const std::size_t from : {0, 1, 3, 8}) {
      const auto part = std::span(bytes).subspan(from, n);
      EXPECT_EQ(crc32c(static_cast<std::uint32_t>(n), part), by_bits(static_cast<std::uint32_t>(n), part))
          << n << " bytes from " << from;
    }
}

TEST(Crc32cTest, AChecksumContinuesOverParts) {
  const std::vector<std::byte> bytes = random_bytes(30001, 8);
  const std::span all(bytes);
  EXPECT_EQ(crc32c(crc32c(5, all.first(12345)), all.subspan(12345)), crc32c(5, all));
}

TEST(Crc32cTest, PartsJoinInAnyOrder) {
  const std::vector<std::byte> bytes = random_bytes(30001, 9);
  const std::span all(bytes);
  const std::uint32_t last = crc32c(0, all.subspan(20000));
  const std::uint32_t middle = crc32c_shift(crc32c(0, all.subspan(4096, 20000 - 4096)), 10001);
  const std::uint32_t first = crc32c_shift(crc32c(77, all.first(4096)), 30001 - 4096);
  EXPECT_EQ(last ^ middle ^ first, crc32c(77, all));
}

TEST(Crc32cTest, TheChecksumDependsOnIdAndGeneration) {
  const std::vector<std::byte> bytes = random_bytes(4096, 10);
  EXPECT_NE(crc32c(crc32c_seed(1, 1), bytes), crc32c(crc32c_seed(2, 1), bytes));
  EXPECT_NE(crc32c(crc32c_seed(1, 1), bytes), crc32c(crc32c_seed(1, 2), bytes));
}

}  // namespace
}  // namespace strata
