#include "hf/stored/int4_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <strata/kernels/weight_quant.h>
#include <strata/runtime/str.h>

#include "hf/folder_files.h"

namespace strata::detail {
namespace {

constexpr std::int64_t kInt4Block = kernels::traits_of(kernels::WeightFormat::int4).block_columns;

/// The extents that the file itself gives, I64 or I32 [2], must be those of the model.
Status check_shape(const StoredWeight& weight, const FindTensor& find, std::vector<std::string>& names) {
  const std::string name = weight.name + "_shape";
  const StoredTensor found = find(name);
  if (found.entry == nullptr) return Status::error(Code::corrupt, str(name, " is missing"));
  const bool is_wide = found.entry->dtype == "I64";
  STRATA_TRY_ASSIGN(const StoredTensor shape, expect_tensor(name, is_wide ? "I64" : "I32", 2, find, names));
  std::array<std::int64_t, 2> extents = {};
  if (is_wide) {
    STRATA_TRY(read_stored(shape, 0, std::as_writable_bytes(std::span(extents))));
  } else {
    std::array<std::int32_t, 2> narrow = {};
    STRATA_TRY(read_stored(shape, 0, std::as_writable_bytes(std::span(narrow))));
    std::copy(narrow.begin(), narrow.end(), extents.begin());
  }
  if (extents == std::array{weight.shape.rows(), weight.shape.columns}) return {};
  return Status::error(Code::corrupt,
                       str(weight.name, " is a matrix [", extents[0], ", ", extents[1],
                           "], but the model needs [", weight.shape.rows(), ", ", weight.shape.columns, "]"));
}

}  // namespace

Result<std::unique_ptr<StoredMatrix>> Int4Matrix::open(const StoredWeight& weight, const FindTensor& find,
                                                       std::vector<std::string>& names) {
  const std::int64_t rows = weight.shape.rows(), columns = weight.shape.columns;
  for (const char* const other : {"_zero_point", "_g_idx"})
    if (find(weight.name + other).entry != nullptr)
      return Status::error(
          Code::unsupported,
          str(weight.name, other,
              " is there; INT4 is supported where it is symmetric, in groups of consecutive columns"));
  if (columns % kInt4Block != 0)
    return Status::error(Code::unsupported, str(weight.name, " has rows of ", columns,
                                                " values; those of INT4 are whole groups of ", kInt4Block));
  std::unique_ptr<Int4Matrix> made(new Int4Matrix({kernels::WeightFormat::int4, columns, {rows}}));
  STRATA_TRY(check_shape(weight, find, names));
  STRATA_TRY_ASSIGN(made->values_,
                    expect_shape(weight.name + "_packed", "I32", {rows, columns / 8}, find, names));
  STRATA_TRY_ASSIGN(made->scales_,
                    expect_shape(weight.name + "_scale", "BF16", {rows, columns / kInt4Block}, find, names));
  return std::unique_ptr<StoredMatrix>(std::move(made));
}

Status Int4Matrix::read(std::int64_t begin, std::span<float> into) const {
  const std::int64_t columns = matrix_.columns, row = begin / columns,
                     rows = (begin + std::ssize(into) - 1) / columns - row + 1;
  const kernels::QuantizedMatrix some = {kernels::WeightFormat::int4, columns, {rows}};
  const kernels::QuantizedPart part = some.part(0);
  std::vector<std::byte> bytes(static_cast<std::size_t>(some.bytes()));
  const auto section = [&](std::int64_t at, std::int64_t row_bytes) {
    return std::span(bytes).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(rows * row_bytes));
  };
  STRATA_TRY(read_stored(values_, row * columns / 2, section(part.values, columns / 2)));
  const std::int64_t row_scales = columns / kInt4Block * 2;
  STRATA_TRY(read_stored(scales_, row * row_scales, section(part.scales, row_scales)));
  kernels::dequantize_matrix(some, bytes, begin - row * columns, into);
  return {};
}

Status Int4Matrix::read_bytes(std::int64_t begin, std::span<std::byte> into) const {
  std::fill(into.begin(), into.end(), std::byte{0});
  const kernels::QuantizedPart part = matrix_.part(0);
  STRATA_TRY(copy_section(
      part.values, part.value_bytes, begin, into,
      [&](std::int64_t at, std::span<std::byte> some) { return read_stored(values_, at, some); }));
  return copy_section(part.scales, part.blocks * 2, begin, into,
                      [&](std::int64_t at, std::span<std::byte> some) {
                        return read_scales(scales_, matrix_.format, at, some);
                      });
}

}  // namespace strata::detail
