#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "io/gguf/blocks.h"

namespace strata::detail {
namespace {

constexpr std::size_t kElems = 32;
using Codes = std::array<unsigned, kElems>;

/// Writes what follows the floats of a block: the fifth bits, if there are any, and two codes of 4 bits in
/// each byte.
void put_codes(const Codes& codes, bool five_bits, std::byte* into) {
  std::uint32_t fifth = 0;
  for (std::size_t i = 0; i < kElems; ++i) fifth |= (codes[i] >> 4 & 1u) << i;
  if (five_bits) {
    std::memcpy(into, &fifth, sizeof fifth);
    into += sizeof fifth;
  }
  for (std::size_t i = 0; i < kElems / 2; ++i)
    into[i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + kElems / 2] & 15) << 4);
}
Codes get_codes(const std::byte* from, bool five_bits) {
  std::uint32_t fifth = 0;
  if (five_bits) {
    std::memcpy(&fifth, from, sizeof fifth);
    from += sizeof fifth;
  }
  Codes codes{};
  for (std::size_t i = 0; i < kElems / 2; ++i) {
    codes[i] = bits_of(from[i]) & 15;
    codes[i + kElems / 2] = bits_of(from[i]) >> 4;
  }
  for (std::size_t i = 0; i < kElems; ++i) codes[i] |= (fifth >> i & 1u) << 4;
  return codes;
}

// The inverse of a scale near the smallest numbers is infinite. In f16 such a scale is 0.
unsigned code_of(float multiple, unsigned most) {
  return std::isfinite(multiple) ? std::min(most, static_cast<unsigned>(std::max(multiple, 0.0f))) : 0;
}
float inverse_of(float scale) { return scale != 0 ? 1.0f / scale : 0.0f; }

/// The value of the largest magnitude becomes code 0, so that its sign decides that of the scale.
void encode_symmetric(std::span<const float> values, unsigned levels, std::byte* into) {
  float largest = 0, extreme = 0;
  for (const float x : values)
    if (std::abs(x) > largest) {
      largest = std::abs(x);
      extreme = x;
    }
  const unsigned middle = levels / 2;
  const auto half = static_cast<float>(middle);
  const float scale = extreme / -half, inverse = inverse_of(scale);
  put_f16(scale, into);
  Codes codes{};
  for (std::size_t i = 0; i < kElems; ++i)
    codes[i] = code_of(values[i] * inverse + (half + 0.5f), levels - 1);
  put_codes(codes, levels > 16, into + 2);
}

void encode_affine(std::span<const float> values, unsigned levels, std::byte* into) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const float scale = (*most - *least) / static_cast<float>(levels - 1), inverse = inverse_of(scale);
  put_f16(scale, into);
  put_f16(*least, into + 2);
  Codes codes{};
  for (std::size_t i = 0; i < kElems; ++i)
    codes[i] = code_of((values[i] - *least) * inverse + 0.5f, levels - 1);
  put_codes(codes, levels > 16, into + 4);
}

void encode_q8(std::span<const float> values, std::byte* into) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  const float scale = largest / 127.0f, inverse = inverse_of(scale);
  put_f16(scale, into);
  for (std::size_t i = 0; i < kElems; ++i) {
    const float multiple = std::isfinite(inverse) ? std::round(values[i] * inverse) : 0.0f;
    into[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(multiple));
  }
}

// ggml has the values of E2M1 times 2, so that they are integers, and half of the scale. It has no negative
// 0.
constexpr float kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// 2^(exponent - 128), the first two of which are not normal; 255 is E8M0's NaN, which ggml does not know.
float half_of_e8m0(unsigned exponent) {
  if (exponent == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

/// The exponent is that of the largest magnitude less 2, which is that of E2M1's largest value. Of codes that
/// are equally near the first one counts.
void encode_mxfp4(std::span<const float> values, std::byte* into) {
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  // ggml's exponent of a magnitude below 2^-125 would be negative.
  const float exponent = largest > 0 ? std::floor(std::log2(largest)) - 2 + 127 : 0;
  const auto byte = static_cast<unsigned>(std::clamp(exponent, 0.0f, 254.0f));
  const float scale = half_of_e8m0(byte);
  Codes codes{};
  for (std::size_t i = 0; i < kElems; ++i) {
    float least = std::abs(values[i]);
    for (unsigned code = 1; code < 16; ++code)
      if (const float error = std::abs(kTwiceE2m1[code] * scale - values[i]); error < least) {
        least = error;
        codes[i] = code;
      }
  }
  into[0] = static_cast<std::byte>(byte);
  put_codes(codes, false, into + 1);
}

void decode_mxfp4(const std::byte* from, std::span<float> values) {
  const float scale = half_of_e8m0(bits_of(from[0]));
  const Codes codes = get_codes(from + 1, false);
  for (std::size_t i = 0; i < kElems; ++i) values[i] = kTwiceE2m1[codes[i]] * scale;
}

bool has_five_bits(GgufFormat format) { return format == GgufFormat::q5_0 || format == GgufFormat::q5_1; }
bool has_minimum(GgufFormat format) { return format == GgufFormat::q4_1 || format == GgufFormat::q5_1; }

}  // namespace

void encode_block_of_32(std::span<const float> values, GgufFormat format, std::byte* into) {
  if (format == GgufFormat::q8_0) return encode_q8(values, into);
  if (format == GgufFormat::mxfp4) return encode_mxfp4(values, into);
  const unsigned levels = has_five_bits(format) ? 32 : 16;
  if (has_minimum(format)) return encode_affine(values, levels, into);
  encode_symmetric(values, levels, into);
}

void decode_block_of_32(const std::byte* from, GgufFormat format, std::span<float> values) {
  if (format == GgufFormat::mxfp4) return decode_mxfp4(from, values);
  const float scale = get_f16(from);
  if (format == GgufFormat::q8_0) {
    for (std::size_t i = 0; i < kElems; ++i)
      values[i] = static_cast<float>(static_cast<std::int8_t>(from[2 + i])) * scale;
    return;
  }
  const bool affine = has_minimum(format), five = has_five_bits(format);
  const Codes codes = get_codes(from + (affine ? 4 : 2), five);
  const float minimum = affine ? get_f16(from + 2) : 0.0f;
  const int zero = affine ? 0 : five ? 16 : 8;
  for (std::size_t i = 0; i < kElems; ++i) {
    const float product = static_cast<float>(static_cast<int>(codes[i]) - zero) * scale;
    values[i] = affine ? product + minimum : product;
  }
}

}  // namespace strata::detail
