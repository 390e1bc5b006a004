#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <strata/kernels/values/weight_format.h>

namespace strata::kernels {

/// Blocks that share a scale of their scales (ScaleType::grouped).
inline constexpr std::int64_t kWeightGroup = 256;
/// Codes of 8-bit scales. Files differ in the last bits of what they stand for, so a matrix has its own map.
inline constexpr std::int64_t kScaleCodes = 256;

/// Where a part of a quantized matrix is: its rows, and the bytes of its sections from the matrix's start. A
/// section that the format lacks is empty.
///
/// The codes and scales of a part are those of its lines, one after the other: a line is a row if blocks
/// begin with each row (WeightFormatTraits::by_rows), and otherwise all of the part. As many lines as a block
/// has rows share their scales.
struct QuantizedPart {
  std::int64_t first_row = 0, rows = 0, elems = 0;
  std::int64_t lines = 0, line_elems = 0;
  std::int64_t line_codes = 0;   ///< codes from one line to the next
  std::int64_t line_blocks = 0;  ///< blocks across a line
  std::int64_t blocks = 0, groups = 0;
  std::int64_t value_bytes = 0;
  std::int64_t values = 0;
  std::int64_t scales = 0;        ///< [blocks]
  std::int64_t group_scales = 0;  ///< nf4-dq only: f32 [groups]
  std::int64_t map = 0;           ///< nf4-dq only: f32 [256], the values of the codes of scales
  std::int64_t mean = 0;          ///< nf4-dq only: f32 [1], the mean of the scales of the blocks
  std::int64_t end = 0;
};

/// The bytes of a scale of a block.
constexpr std::int64_t scale_bytes(ScaleType type) noexcept {
  return type == ScaleType::f32 ? 4 : type == ScaleType::bf16 ? 2 : 1;
}

/// Quantized matrices [rows, columns] of the same layout, one after the other, each a row of bytes. A matrix
/// that is not one of several experts is alone. Its parts are quantized by themselves, one after the other: a
/// fused matrix consists of several tensors of a model's files, each of which keeps its blocks and groups.
struct QuantizedMatrix {
  static constexpr std::size_t kMaxParts = 3;
  static constexpr std::int64_t kAlign = 64;  ///< the alignment of the sections in bytes
  /// Matrices of experts are aligned to it, so that each may be apart from the others wherever they are held.
  static constexpr std::int64_t kExpertAlign = 4096;

  WeightFormat format = WeightFormat::full;
  std::int64_t columns = 0;
  std::array<std::int64_t, kMaxParts> rows_of = {};  ///< rows of each part; 0: no further part
  std::int64_t count = 1;                            ///< matrices
  std::int64_t align = kAlign;                       ///< alignment of a matrix in bytes

  // These are of one matrix, and the next two of all.
  constexpr std::int64_t rows() const noexcept { return rows_of[0] + rows_of[1] + rows_of[2]; }
  constexpr std::size_t n_parts() const noexcept { return rows_of[1] == 0 ? 1 : rows_of[2] == 0 ? 2 : 3; }
  constexpr std::int64_t matrix_elems() const noexcept { return rows() * columns; }
  constexpr std::int64_t matrix_bytes() const noexcept {
    return ceil_div(part(n_parts() - 1).end, align) * align;
  }
  constexpr std::int64_t n_elems() const noexcept { return count * matrix_elems(); }
  constexpr std::int64_t bytes() const noexcept { return count * matrix_bytes(); }

  /// A part of the first matrix.
  constexpr QuantizedPart part(std::size_t index) const noexcept {
    const WeightFormatTraits& f = traits_of(format);
    QuantizedPart at;
    for (std::size_t i = 0; i <= index; ++i) {
      at.first_row += at.rows;
      at.rows = rows_of[i];
      at.elems = at.rows * columns;
      at.lines = f.by_rows ? at.rows : 1;
      at.line_elems = f.by_rows ? columns : at.elems;
      at.line_blocks = ceil_div(at.line_elems, f.block_columns);
      const bool is_padded = f.by_rows && f.packing != Packing::bytes;
      at.line_codes = is_padded ? at.line_blocks * f.block_columns : at.line_elems;
      at.blocks = ceil_div(at.lines, f.block_rows) * at.line_blocks;
      at.value_bytes = ceil_div(at.lines * at.line_codes * f.value_bits(), 8);
      at.values = at.end;
      at.scales = aligned(at.values + at.value_bytes);
      at.end = at.group_scales = at.map = at.mean = aligned(at.scales + at.blocks * scale_bytes(f.scales));
      if (f.scales != ScaleType::grouped) continue;
      at.groups = ceil_div(at.blocks, kWeightGroup);
      at.map = aligned(at.group_scales + at.groups * 4);
      at.mean = at.map + kScaleCodes * 4;
      at.end = aligned(at.mean + 4);
    }
    return at;
  }
  friend constexpr bool operator==(const QuantizedMatrix&, const QuantizedMatrix&) = default;

 private:
  static constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }
  static constexpr std::int64_t aligned(std::int64_t at) noexcept { return ceil_div(at, kAlign) * kAlign; }
};

/// A part is quantized in units, which do not share blocks: a block where it is one line, and otherwise as
/// many lines as a block has rows.
struct QuantizedUnits {
  std::int64_t n = 0;       ///< units of the part; the last one may be shorter
  std::int64_t elems = 0;   ///< values of each
  std::int64_t bytes = 0;   ///< bytes of its codes
  std::int64_t blocks = 0;  ///< its scales
};
constexpr QuantizedUnits units_of(const QuantizedMatrix& matrix, std::size_t index) noexcept {
  const WeightFormatTraits& f = traits_of(matrix.format);
  const QuantizedPart part = matrix.part(index);
  if (!f.by_rows) return {part.blocks, f.block_columns, f.block_columns * f.value_bits() / 8, 1};
  return {(part.lines + f.block_rows - 1) / f.block_rows, f.block_rows * part.line_elems,
          f.block_rows * part.line_codes * f.value_bits() / 8, part.line_blocks};
}

}  // namespace strata::kernels
