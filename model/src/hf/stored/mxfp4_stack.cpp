#include "hf/stored/mxfp4_stack.h"

#include <algorithm>
#include <cstring>

#include <strata/kernels/weight_quant.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

using kernels::QuantizedMatrix;
using kernels::QuantizedPart;

constexpr std::int64_t kBlockValues = kernels::traits_of(kernels::WeightFormat::mxfp4).block_columns;

}  // namespace

Result<std::unique_ptr<StoredMatrix>> Mxfp4Stack::open(const StoredWeight& weight, const FindTensor& find,
                                                       std::vector<std::string>& names) {
  QuantizedMatrix matrix = weight.shape;
  matrix.format = kernels::WeightFormat::mxfp4;
  if (matrix.columns % kBlockValues != 0)
    return Status::error(Code::unsupported,
                         str(weight.name, " has rows of ", matrix.columns,
                             " values; those of MXFP4 are whole blocks of ", kBlockValues));
  std::unique_ptr<Mxfp4Stack> made(new Mxfp4Stack(matrix));
  made->rows_in_turn_ = weight.rows_in_turn;
  std::vector<std::int64_t> shape = {matrix.count, matrix.rows(), matrix.columns / kBlockValues};
  if (matrix.align != QuantizedMatrix::kExpertAlign) shape.erase(shape.begin());
  STRATA_TRY_ASSIGN(made->scales_, expect_shape(weight.name + "_scales", "U8", shape, find, names));
  shape.push_back(kBlockValues / 2);
  STRATA_TRY_ASSIGN(made->blocks_, expect_shape(weight.name + "_blocks", "U8", shape, find, names));
  return std::unique_ptr<StoredMatrix>(std::move(made));
}

// Bytes of the part's rows from byte `at` on. Where rows of two parts come in turn, those of both are read.
Status Mxfp4Stack::read_rows(const StoredTensor& tensor, std::int64_t row_bytes, const Rows& of,
                             std::int64_t at, std::span<std::byte> into) const {
  const std::int64_t first_row = of.matrix * matrix_.rows();
  const auto read_some = [&](std::int64_t from, std::span<std::byte> some) {
    return &tensor == &scales_ ? read_scales(tensor, matrix_.format, from, some)
                               : read_stored(tensor, from, some);
  };
  if (!rows_in_turn_) return read_some((first_row + matrix_.part(of.part).first_row) * row_bytes + at, into);
  constexpr std::int64_t kBytesAtOnce = 1 << 20;
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kBytesAtOnce / row_bytes);
  std::vector<std::byte> both;
  while (!into.empty()) {
    const std::int64_t row = at / row_bytes, last = (at + std::ssize(into) - 1) / row_bytes,
                       rows = std::min(rows_at_once, last - row + 1);
    both.resize(static_cast<std::size_t>((2 * rows - 1) * row_bytes));
    const auto in_turn = static_cast<std::int64_t>(of.part);
    STRATA_TRY(read_some((first_row + 2 * row + in_turn) * row_bytes, both));
    for (std::int64_t i = 0; i < rows && !into.empty(); ++i) {
      const std::int64_t skip = at % row_bytes;
      const auto n = static_cast<std::size_t>(std::min(row_bytes - skip, std::ssize(into)));
      std::memcpy(into.data(), both.data() + 2 * i * row_bytes + skip, n);
      into = into.subspan(n);
      at += static_cast<std::int64_t>(n);
    }
  }
  return {};
}

Status Mxfp4Stack::read_bytes(std::int64_t begin, std::span<std::byte> into) const {
  std::fill(into.begin(), into.end(), std::byte{0});
  const std::int64_t of_matrix = matrix_.matrix_bytes(), end = begin + std::ssize(into);
  for (std::int64_t m = begin / of_matrix; m * of_matrix < end; ++m)
    for (std::size_t p = 0; p < matrix_.n_parts(); ++p) {
      const QuantizedPart part = matrix_.part(p);
      const auto section = [&](const StoredTensor& tensor, std::int64_t at, std::int64_t row_bytes) {
        return copy_section(m * of_matrix + at, part.rows * row_bytes, begin, into,
                            [&](std::int64_t from, std::span<std::byte> some) {
                              return read_rows(tensor, row_bytes, {m, p}, from, some);
                            });
      };
      STRATA_TRY(section(blocks_, part.values, matrix_.columns / 2));
      STRATA_TRY(section(scales_, part.scales, matrix_.columns / kBlockValues));
    }
  return {};
}

// Values of a part of a matrix, from its value `begin` on.
Status Mxfp4Stack::read_values(const Rows& of, std::int64_t begin, std::span<float> into) const {
  const std::int64_t columns = matrix_.columns, row = begin / columns,
                     rows = (begin + std::ssize(into) - 1) / columns - row + 1;
  const QuantizedMatrix some = {kernels::WeightFormat::mxfp4, columns, {rows}};
  const QuantizedPart part = some.part(0);
  std::vector<std::byte> bytes(static_cast<std::size_t>(some.bytes()));
  const auto section = [&](std::int64_t at, std::int64_t row_bytes) {
    return std::span(bytes).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(rows * row_bytes));
  };
  STRATA_TRY(read_rows(blocks_, columns / 2, of, row * columns / 2, section(part.values, columns / 2)));
  const std::int64_t row_scales = columns / kBlockValues;
  STRATA_TRY(read_rows(scales_, row_scales, of, row * row_scales, section(part.scales, row_scales)));
  kernels::dequantize_matrix(some, bytes, begin - row * columns, into);
  return {};
}

Status Mxfp4Stack::read(std::int64_t begin, std::span<float> into) const {
  const std::int64_t of_matrix = matrix_.matrix_elems(), end = begin + std::ssize(into);
  for (std::int64_t m = begin / of_matrix; m * of_matrix < end; ++m)
    for (std::size_t p = 0; p < matrix_.n_parts(); ++p) {
      const QuantizedPart part = matrix_.part(p);
      const std::int64_t begins = m * of_matrix + part.first_row * matrix_.columns,
                         from = std::max(begin, begins), to = std::min(end, begins + part.elems);
      if (from < to)
        STRATA_TRY(read_values(
            {m, p}, from - begins,
            into.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(to - from))));
    }
  return {};
}

}  // namespace strata::detail
