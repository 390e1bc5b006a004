#include <strata/runtime/io/crc32c.h>

#include <array>
#include <cstring>

namespace strata {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;  // bit-reflected

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Slicing-by-8 (Kounavis & Berry 2005): table k advances a byte over k more zero bytes.
constexpr Tables make_tables() noexcept {
  Tables t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    t[0][i] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xFF];
  return t;
}
constexpr Tables kTables = make_tables();

// a * b modulo the polynomial over GF(2), bit-reflected: bit 31 is x^0.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

// powers[k] = x^(8 * 2^k).
constexpr std::array<std::uint32_t, 64> make_powers() noexcept {
  std::array<std::uint32_t, 64> powers{};
  powers[0] = 1u << 23;  // x^8
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = multiply(powers[k - 1], powers[k - 1]);
  return powers;
}
constexpr std::array<std::uint32_t, 64> kPowers = make_powers();

std::uint64_t load64(const std::byte* p) noexcept {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = (value << 8) | static_cast<std::uint64_t>(p[i]);
  return value;
}

}  // namespace

std::uint32_t crc32c(std::uint32_t seed, std::span<const std::byte> bytes) noexcept {
  static const bool hardware = detail::crc32c_has_hardware();
  return hardware ? detail::crc32c_hardware(seed, bytes) : detail::crc32c_portable(seed, bytes);
}

std::uint32_t crc32c_seed(std::uint64_t id, std::uint64_t generation) noexcept {
  const std::array<std::uint64_t, 2> words{id, generation};
  return crc32c(0, std::as_bytes(std::span(words)));
}

std::uint32_t crc32c_shift(std::uint32_t crc, std::uint64_t bytes) noexcept {
  for (std::size_t k = 0; bytes != 0; bytes >>= 1, ++k)
    if ((bytes & 1) != 0) crc = multiply(crc, kPowers[k]);
  return crc;
}

std::uint32_t detail::crc32c_portable(std::uint32_t seed, std::span<const std::byte> bytes) noexcept {
  std::uint32_t crc = ~seed;
  const std::byte* p = bytes.data();
  std::size_t n = bytes.size();
  for (; n >= 8; n -= 8, p += 8) {
    const std::uint64_t word = load64(p) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(*p)) & 0xFF];
  return ~crc;
}

}  // namespace strata
