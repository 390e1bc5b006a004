#include "hf/stored/fp8_matrix.h"

#include <algorithm>

#include <strata/kernels/weight_quant.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr std::int64_t kTileRows = kernels::traits_of(kernels::WeightFormat::fp8_block).block_rows;

}  // namespace

bool Fp8Matrix::is_one(const std::string& weight, const FindTensor& find) {
  const StoredTensor values = find(weight);
  return values.entry != nullptr && values.entry->dtype == "F8_E4M3" && values.entry->shape.size() == 2;
}

Result<std::unique_ptr<StoredMatrix>> Fp8Matrix::open(const StoredWeight& weight, const FindTensor& find,
                                                      std::vector<std::string>& names) {
  const std::int64_t rows = weight.shape.rows(), columns = weight.shape.columns;
  std::unique_ptr<Fp8Matrix> made(new Fp8Matrix({kernels::WeightFormat::fp8_block, columns, {rows}}));
  const kernels::QuantizedPart part = made->matrix_.part(0);
  STRATA_TRY_ASSIGN(made->values_, expect_shape(weight.name, "F8_E4M3", {rows, columns}, find, names));
  STRATA_TRY_ASSIGN(made->scales_,
                    expect_shape(weight.name + "_scale_inv", "F32",
                                 {part.blocks / part.line_blocks, part.line_blocks}, find, names));
  return std::unique_ptr<StoredMatrix>(std::move(made));
}

Status Fp8Matrix::read(std::int64_t begin, std::span<float> into) const {
  const std::int64_t of_tiles = kTileRows * matrix_.columns;
  for (std::size_t done = 0; done < into.size();) {
    const std::int64_t at = begin + static_cast<std::int64_t>(done), end = (at / of_tiles + 1) * of_tiles;
    const std::size_t n = std::min(into.size() - done, static_cast<std::size_t>(end - at));
    STRATA_TRY(read_in_tiles(at, into.subspan(done, n)));
    done += n;
  }
  return {};
}

// Values of rows that share their tiles.
Status Fp8Matrix::read_in_tiles(std::int64_t begin, std::span<float> into) const {
  const std::int64_t row = begin / matrix_.columns, skip = begin % matrix_.columns;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(skip) + into.size());
  STRATA_TRY(read_stored(values_, row * matrix_.columns, std::as_writable_bytes(std::span(codes))));
  std::vector<float> scales(static_cast<std::size_t>(matrix_.part(0).line_blocks));
  STRATA_TRY(read_stored(scales_, row / kTileRows * std::ssize(scales) * std::int64_t{sizeof(float)},
                         std::as_writable_bytes(std::span(scales))));
  kernels::dequantize_weights(matrix_, codes.data(), scales, skip, into);
  return {};
}

Status Fp8Matrix::read_bytes(std::int64_t begin, std::span<std::byte> into) const {
  std::fill(into.begin(), into.end(), std::byte{0});
  const kernels::QuantizedPart part = matrix_.part(0);
  STRATA_TRY(
      copy_section(part.values, part.value_bytes, begin, into,
                   [&](std::int64_t at, std::span<std::byte> some) { return read_e4m3(values_, at, some); }));
  return copy_section(part.scales, part.blocks * std::int64_t{sizeof(float)}, begin, into,
                      [&](std::int64_t at, std::span<std::byte> some) {
                        return read_scales(scales_, matrix_.format, at, some);
                      });
}

}  // namespace strata::detail
