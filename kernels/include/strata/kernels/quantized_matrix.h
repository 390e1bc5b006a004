#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace strata::kernels {

/// How a matrix that is not trained is stored.
enum class WeightFormat : std::uint8_t {
  full,    ///< not quantized: in the dtype of the other parameters
  int8,    ///< 8 bits a value, and an f32 scale for each block
  nf4,     ///< 4 bits a value (Dettmers et al. 2023, arXiv 2305.14314), and an f32 scale for each block
  nf4_dq,  ///< the same with double quantization: 8-bit scales, with an f32 scale for each group of blocks
};
/// The name in train.base; empty for `full`, whose name is that of the dtype.
constexpr std::string_view to_string(WeightFormat format) noexcept {
  switch (format) {
    case WeightFormat::full:
      return "";
    case WeightFormat::int8:
      return "int8";
    case WeightFormat::nf4:
      return "nf4";
    case WeightFormat::nf4_dq:
      return "nf4-dq";
  }
  return "";
}

/// Consecutive values of a part that share a scale, and blocks that share a scale of their scales.
inline constexpr std::int64_t kWeightBlock = 64, kWeightGroup = 256;
/// Codes of 8-bit scales. Files differ in the last bits of what they stand for, so a matrix has its own map.
inline constexpr std::int64_t kScaleCodes = 256;

/// Where a part of a quantized matrix is: its rows, and the bytes of its sections from the matrix's start. A
/// section that the format lacks is empty.
struct QuantizedPart {
  std::int64_t first_row = 0, rows = 0, elems = 0;
  std::int64_t blocks = 0, groups = 0;
  std::int64_t values = 0;        ///< int8: elems bytes; else two values a byte, the first in its upper half
  std::int64_t scales = 0;        ///< f32 [blocks]; of nf4-dq u8 [blocks]
  std::int64_t group_scales = 0;  ///< nf4-dq only: f32 [groups]
  std::int64_t map = 0;           ///< nf4-dq only: f32 [256], the values of the codes of scales
  std::int64_t mean = 0;          ///< nf4-dq only: f32 [1], the mean of the scales of the blocks
  std::int64_t end = 0;
};

/// A quantized matrix [rows, columns], a row of bytes. Its parts are quantized by themselves, one after the
/// other: a fused matrix consists of several tensors of a model's files, each of which keeps its blocks and
/// groups.
struct QuantizedMatrix {
  static constexpr std::size_t kMaxParts = 3;
  static constexpr std::int64_t kAlign = 64;  ///< the alignment of the sections in bytes

  WeightFormat format = WeightFormat::full;
  std::int64_t columns = 0;
  std::array<std::int64_t, kMaxParts> rows_of = {};  ///< rows of each part; 0: no further part

  constexpr std::int64_t rows() const noexcept { return rows_of[0] + rows_of[1] + rows_of[2]; }
  constexpr std::int64_t n_elems() const noexcept { return rows() * columns; }
  constexpr std::size_t n_parts() const noexcept { return rows_of[1] == 0 ? 1 : rows_of[2] == 0 ? 2 : 3; }
  constexpr QuantizedPart part(std::size_t index) const noexcept {
    QuantizedPart at;
    for (std::size_t i = 0; i <= index; ++i) {
      at.first_row += at.rows;
      at.rows = rows_of[i];
      at.elems = at.rows * columns;
      at.blocks = (at.elems + kWeightBlock - 1) / kWeightBlock;
      at.values = at.end;
      at.scales = aligned(at.values + (format == WeightFormat::int8 ? at.elems : (at.elems + 1) / 2));
      if (format != WeightFormat::nf4_dq) {
        at.end = at.group_scales = at.map = at.mean = aligned(at.scales + at.blocks * 4);
        continue;
      }
      at.groups = (at.blocks + kWeightGroup - 1) / kWeightGroup;
      at.group_scales = aligned(at.scales + at.blocks);
      at.map = aligned(at.group_scales + at.groups * 4);
      at.mean = at.map + kScaleCodes * 4;
      at.end = aligned(at.mean + 4);
    }
    return at;
  }
  /// The bytes of all parts.
  constexpr std::int64_t bytes() const noexcept { return part(n_parts() - 1).end; }
  friend constexpr bool operator==(const QuantizedMatrix&, const QuantizedMatrix&) = default;

 private:
  static constexpr std::int64_t aligned(std::int64_t at) noexcept {
    return (at + kAlign - 1) / kAlign * kAlign;
  }
};

}  // namespace strata::kernels
