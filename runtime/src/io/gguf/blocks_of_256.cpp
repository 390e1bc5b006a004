#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "io/gguf/blocks.h"

namespace strata::detail {
namespace {

constexpr std::size_t kSuperBlock = 256;
constexpr std::size_t kGroup = 32, kGroups = kSuperBlock / kGroup;     // the groups of q4_k and q5_k
constexpr std::size_t kGroup6 = 16, kGroups6 = kSuperBlock / kGroup6;  // the groups of q6_k
constexpr float kNothing = 1e-15f;                                     // groups below this magnitude are zero
using SuperCodes = std::array<int, kSuperBlock>;

/// Rounds to nearest, ties to even, with the bits that ggml has also beyond 2^22.
int nearest(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x + 12582912.0f);  // 1.5 x 2^23
  return static_cast<int>(bits & 0x7fffff) - 0x400000;
}
float as_float(int x) { return static_cast<float>(x); }

/// A group's values are scale code - minimum.
struct Affine {
  float scale = 0, minimum = 0;
};

/// Least squares over codes that are fixed, for a group whose minimum may not be above 0.
struct AffineFit {
  float scale = 0, offset = 0;
  bool is_one = false;
};
AffineFit fit_codes(std::span<const float> x, std::span<const float> weights, std::span<const int> codes,
                    float sum_w, float sum_x) {
  float sum_l = 0, sum_l2 = 0, sum_xl = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float wl = weights[i] * as_float(codes[i]);
    sum_l += wl;
    sum_l2 += wl * as_float(codes[i]);
    sum_xl += wl * x[i];
  }
  const float determinant = sum_w * sum_l2 - sum_l * sum_l;
  if (!(determinant > 0)) return {};
  AffineFit fit{(sum_w * sum_xl - sum_x * sum_l) / determinant,
                (sum_l2 * sum_x - sum_l * sum_xl) / determinant, true};
  if (fit.offset > 0) fit = {sum_xl / sum_l2, 0, true};
  return fit;
}

float squared_error(std::span<const float> x, std::span<const float> weights, std::span<const int> codes,
                    float scale, float offset) {
  float error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float off = scale * as_float(codes[i]) + offset - x[i];
    error += weights[i] * (off * off);
  }
  return error;
}

void assign_codes(std::span<const float> x, float inverse, float least, int most, std::span<int> codes) {
  for (std::size_t i = 0; i < x.size(); ++i)
    codes[i] = std::clamp(nearest(inverse * (x[i] - least)), 0, most);
}

/// Tries `steps` + 1 scales around the range of the group, and keeps the one whose weighted squared error is
/// the least after a least squares fit. `first` is what the first adds to the `most` steps of the range.
Affine search_affine(std::span<const float> x, std::span<const float> weights, int most, float first,
                     int steps, std::span<int> codes) {
  float least = x[0], largest = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (std::size_t i = 1; i < x.size(); ++i) {
    least = x[i] < least ? x[i] : least;
    largest = x[i] > largest ? x[i] : largest;
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (least > 0) least = 0;
  std::fill(codes.begin(), codes.end(), 0);
  if (largest == least) return {0, -least};
  const float inverse = as_float(most) / (largest - least);
  assign_codes(x, inverse, least, most, codes);
  float scale = 1 / inverse, offset = least;
  float best = squared_error(x, weights, codes, scale, offset);
  std::array<int, kGroup> tried{};
  for (int step = 0; step <= steps; ++step) {
    // ggml measures later steps from the minimum that was found so far.
    const float now = (first + 0.1f * as_float(step) + as_float(most)) / (largest - offset);
    assign_codes(x, now, offset, most, tried);
    const AffineFit fit = fit_codes(x, weights, tried, sum_w, sum_x);
    if (!fit.is_one) continue;
    const float error = squared_error(x, weights, tried, fit.scale, fit.offset);
    if (!(error < best)) continue;
    std::copy_n(tried.begin(), x.size(), codes.begin());
    best = error;
    scale = fit.scale;
    offset = fit.offset;
  }
  return {scale, -offset};
}

/// Scales and minima of 6 bits for 8 groups, in 12 bytes: the lower 4 groups have whole bytes, whose upper
/// two bits are those of the upper 4.
struct SixBits {
  std::array<unsigned, kGroups> scales{}, minima{};
};
void put_six_bits(const SixBits& s, std::byte* into) {
  for (std::size_t j = 0; j < 4; ++j) {
    into[j] = static_cast<std::byte>(s.scales[j] | s.scales[j + 4] >> 4 << 6);
    into[j + 4] = static_cast<std::byte>(s.minima[j] | s.minima[j + 4] >> 4 << 6);
    into[j + 8] = static_cast<std::byte>((s.scales[j + 4] & 15) | (s.minima[j + 4] & 15) << 4);
  }
}
SixBits get_six_bits(const std::byte* from) {
  SixBits s;
  for (std::size_t j = 0; j < 4; ++j) {
    const unsigned a = bits_of(from[j]), b = bits_of(from[j + 4]), c = bits_of(from[j + 8]);
    s.scales[j] = a & 63;
    s.minima[j] = b & 63;
    s.scales[j + 4] = (c & 15) | a >> 6 << 4;
    s.minima[j + 4] = c >> 4 | b >> 6 << 4;
  }
  return s;
}

Affine search_group(std::span<const float> x, bool five_bits, std::span<int> codes) {
  float sum = 0;
  for (const float value : x) sum += value * value;
  const float root = std::sqrt(sum / as_float(kGroup));
  std::array<float, kGroup> weights{};
  for (std::size_t i = 0; i < kGroup; ++i) weights[i] = root + std::abs(x[i]);
  return five_bits ? search_affine(x, weights, 31, -0.5f, 15, codes)
                   : search_affine(x, weights, 15, -1.0f, 20, codes);
}

unsigned six_bits_of(float multiple) {
  return std::min(63u, static_cast<unsigned>(static_cast<std::uint8_t>(nearest(multiple))));
}

void put_q4_q5(const SuperCodes& codes, bool five_bits, std::byte* into) {
  if (five_bits) {
    for (std::size_t i = 0; i < kGroup; ++i) {
      unsigned fifth = 0;
      for (std::size_t j = 0; j < kGroups; ++j)
        fifth |= (static_cast<unsigned>(codes[kGroup * j + i]) >> 4 & 1) << j;
      into[i] = static_cast<std::byte>(fifth);
    }
    into += kGroup;
  }
  for (std::size_t j = 0; j < kGroups; j += 2)
    for (std::size_t i = 0; i < kGroup; ++i)
      *into++ =
          static_cast<std::byte>((codes[kGroup * j + i] & 15) | (codes[kGroup * (j + 1) + i] & 15) << 4);
}

// Layout: the floats of scales and minima, their codes, the fifth bits of codes if there are, 4 bits of
// codes.
void encode_groups(std::span<const float> values, bool five_bits, std::byte* into) {
  SuperCodes codes{};
  std::array<Affine, kGroups> found{};
  float most_scale = 0, most_minimum = 0;
  for (std::size_t j = 0; j < kGroups; ++j) {
    found[j] = search_group(values.subspan(kGroup * j, kGroup), five_bits,
                            std::span(codes).subspan(kGroup * j, kGroup));
    most_scale = std::max(most_scale, found[j].scale);
    most_minimum = std::max(most_minimum, found[j].minimum);
  }
  const float per_scale = most_scale > 0 ? 63.0f / most_scale : 0.0f;
  const float per_minimum = most_minimum > 0 ? 63.0f / most_minimum : 0.0f;
  SixBits six;
  for (std::size_t j = 0; j < kGroups; ++j) {
    six.scales[j] = six_bits_of(per_scale * found[j].scale);
    six.minima[j] = six_bits_of(per_minimum * found[j].minimum);
  }
  put_f16(most_scale / 63.0f, into);
  put_f16(most_minimum / 63.0f, into + 2);
  put_six_bits(six, into + 4);
  for (std::size_t j = 0; j < kGroups; ++j) {
    const float scale = get_f16(into) * static_cast<float>(six.scales[j]);
    const float minimum = get_f16(into + 2) * static_cast<float>(six.minima[j]);
    if (scale == 0) continue;  // the codes stay as the search left them
    for (std::size_t i = kGroup * j; i < kGroup * (j + 1); ++i)
      codes[i] = std::clamp(nearest((values[i] + minimum) / scale), 0, five_bits ? 31 : 15);
  }
  put_q4_q5(codes, five_bits, into + 16);
}

void decode_groups(const std::byte* from, bool five_bits, std::span<float> values) {
  const float scale = get_f16(from), minimum = get_f16(from + 2);
  const SixBits six = get_six_bits(from + 4);
  const std::byte *const fifth = from + 16, *const codes = fifth + (five_bits ? kGroup : 0);
  for (std::size_t j = 0; j < kGroups; ++j) {
    const float d = scale * static_cast<float>(six.scales[j]);
    const float m = minimum * static_cast<float>(six.minima[j]);
    for (std::size_t i = 0; i < kGroup; ++i) {
      const unsigned byte = bits_of(codes[j / 2 * kGroup + i]);
      unsigned code = j % 2 == 0 ? byte & 15 : byte >> 4;
      if (five_bits) code |= (bits_of(fifth[i]) >> j & 1) << 4;
      values[kGroup * j + i] = d * static_cast<float>(code) - m;
    }
  }
}

/// SuperCodes -32 .. 31 of a group by the scale with the least squared error, weighted by the squares of the
/// values, of 19 around the one that the largest magnitude has.
float search_symmetric(std::span<const float> x, std::span<int> codes) {
  float extreme = 0, largest = 0;
  for (const float value : x)
    if (std::abs(value) > largest) {
      largest = std::abs(value);
      extreme = value;
    }
  std::fill(codes.begin(), codes.end(), -32);
  if (largest < kNothing) return 0;
  float scale = 0, best = 0;
  const auto attempt = [&](float inverse, bool first) {
    float sum_xl = 0, sum_l2 = 0;
    std::array<int, kGroup6> tried{};
    for (std::size_t i = 0; i < x.size(); ++i) {
      tried[i] = std::clamp(nearest(inverse * x[i]), -32, 31);
      const float w = x[i] * x[i], l = as_float(tried[i]);
      sum_xl += w * x[i] * l;
      sum_l2 += w * l * l;
    }
    if (first ? sum_l2 == 0 : !(sum_l2 > 0 && sum_xl * sum_xl > best * sum_l2)) {
      if (first) std::copy(tried.begin(), tried.end(), codes.begin());
      return;
    }
    std::copy(tried.begin(), tried.end(), codes.begin());
    scale = sum_xl / sum_l2;
    best = scale * sum_xl;
  };
  attempt(-32.0f / extreme, true);
  for (int step = -9; step <= 9; ++step)
    if (step != 0) attempt(-(32.0f + 0.1f * as_float(step)) / extreme, false);
  return scale;
}

// Layout: 4 lower bits of codes, 2 upper bits, scales, their float. In each half of the block a byte has bits
// of values that are 32 or 64 apart.
void put_q6(const SuperCodes& codes, std::byte* into) {
  for (std::size_t half = 0; half < 2; ++half)
    for (std::size_t i = 0; i < 32; ++i) {
      std::array<unsigned, 4> q{};
      for (std::size_t k = 0; k < 4; ++k) q[k] = static_cast<unsigned>(codes[128 * half + 32 * k + i] + 32);
      into[64 * half + i] = static_cast<std::byte>((q[0] & 15) | (q[2] & 15) << 4);
      into[64 * half + 32 + i] = static_cast<std::byte>((q[1] & 15) | (q[3] & 15) << 4);
      into[128 + 32 * half + i] =
          static_cast<std::byte>(q[0] >> 4 | q[1] >> 4 << 2 | q[2] >> 4 << 4 | q[3] >> 4 << 6);
    }
}

void encode_q6(std::span<const float> values, std::byte* into) {
  SuperCodes codes{};
  std::array<float, kGroups6> scales{};
  float largest = 0, extreme = 0;
  for (std::size_t j = 0; j < kGroups6; ++j) {
    scales[j] = search_symmetric(values.subspan(kGroup6 * j, kGroup6),
                                 std::span(codes).subspan(kGroup6 * j, kGroup6));
    if (std::abs(scales[j]) > largest) {
      largest = std::abs(scales[j]);
      extreme = scales[j];
    }
  }
  if (largest < kNothing) {
    std::fill_n(into, 210, std::byte{0});
    return;
  }
  const float inverse = -128.0f / extreme;
  put_f16(1 / inverse, into + 208);
  const float unit = get_f16(into + 208);
  for (std::size_t j = 0; j < kGroups6; ++j) {
    const auto multiple = static_cast<std::int8_t>(std::min(127, nearest(inverse * scales[j])));
    into[192 + j] = static_cast<std::byte>(multiple);
    const float scale = unit * static_cast<float>(multiple);
    if (scale == 0) continue;
    for (std::size_t i = kGroup6 * j; i < kGroup6 * (j + 1); ++i)
      codes[i] = std::clamp(nearest(values[i] / scale), -32, 31);
  }
  put_q6(codes, into);
}

void decode_q6(const std::byte* from, std::span<float> values) {
  const float unit = get_f16(from + 208);
  for (std::size_t at = 0; at < kSuperBlock; ++at) {
    const std::size_t half = at / 128, k = at % 128 / 32, i = at % 32;
    const unsigned low = bits_of(from[64 * half + 32 * (k % 2) + i]) >> (k < 2 ? 0 : 4) & 15;
    const unsigned high = bits_of(from[128 + 32 * half + i]) >> (2 * k) & 3;
    const auto multiple = static_cast<float>(static_cast<std::int8_t>(from[192 + at / kGroup6]));
    values[at] = unit * multiple * static_cast<float>(static_cast<int>(low | high << 4) - 32);
  }
}

}  // namespace

void encode_block_of_256(std::span<const float> values, GgufFormat format, std::byte* into) {
  if (format == GgufFormat::q6_k) return encode_q6(values, into);
  encode_groups(values, format == GgufFormat::q5_k, into);
}

void decode_block_of_256(const std::byte* from, GgufFormat format, std::span<float> values) {
  if (format == GgufFormat::q6_k) return decode_q6(from, values);
  decode_groups(from, format == GgufFormat::q5_k, values);
}

}  // namespace strata::detail
