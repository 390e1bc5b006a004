#include <strata/runtime/io/crc32c.h>

#include <algorithm>
#include <array>

#include <isa-l/crc.h>

namespace strata {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;  // bit-reflected

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

}  // namespace

std::uint32_t crc32c(std::uint32_t seed, std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kPart = std::size_t{1} << 30;  // the library takes lengths as int
  std::uint32_t state = ~seed;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kPart));
    // The library writes nothing; its parameter is not const.
    auto* const data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(part.data()));
    state = ::crc32_iscsi(data, static_cast<int>(part.size()), state);
    bytes = bytes.subspan(part.size());
  }
  return ~state;
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

}  // namespace strata
