#include "execute/initial_fill.h"

#include <algorithm>
#include <cmath>

#include <strata/kernels/dora.h>
#include <strata/kernels/weight_quant.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/rng.h>

namespace strata::detail {
namespace {

float drawn(const Init& init, const Rng& rng, std::uint64_t index) {
  if (init.std == 0) return init.mean;
  if (!init.is_uniform) return init.mean + init.std * rng.normal(index);
  return init.mean + init.std * std::sqrt(3.0f) * (2 * rng.uniform(index) - 1);
}

}  // namespace

Status InitialFill::fill(const StatePiece& piece, std::span<float> values) {
  const bool is_quantized =
      plan_.quantized_of_tensor[static_cast<std::size_t>(piece.tensor)].format != kernels::WeightFormat::full;
  return is_quantized ? fill_quantized(piece, values) : fill_values(piece, values);
}

Status InitialFill::fill_values(const StatePiece& piece, std::span<float> values) {
  if (given_) {
    STRATA_TRY_ASSIGN(const bool is_given, given_(piece, values));
    if (is_given) return Status::ok();
  }
  if (const RowNorms& norms = plan_.init_of_tensor[static_cast<std::size_t>(piece.tensor)].norms;
      !norms.of.empty()) {
    if (norms_tensor_ != piece.tensor) STRATA_TRY(compute_norms(norms));
    norms_tensor_ = piece.tensor;
    std::copy_n(norms_.begin() + piece.offset, values.size(), values.begin());
    return {};
  }
  draw(piece, values);
  return {};
}

Status InitialFill::fill_quantized(const StatePiece& piece, std::span<float> values) {
  bytes_.resize(values.size());
  STRATA_TRY(quantized_bytes(piece));
  std::transform(bytes_.begin(), bytes_.end(), values.begin(),
                 [](std::byte byte) { return static_cast<float>(byte); });
  return {};
}

Status InitialFill::quantized_bytes(const StatePiece& piece) {
  const kernels::QuantizedMatrix& matrix = plan_.quantized_of_tensor[static_cast<std::size_t>(piece.tensor)];
  if (given_quantized_) {
    STRATA_TRY_ASSIGN(const bool is_given, given_quantized_(piece, matrix, bytes_));
    if (is_given) return {};
  }
  if (tensor_ != piece.tensor) {
    tensor_ = piece.tensor;
    quantizer_.emplace(matrix, pool_);
  }
  return quantizer_->read_bytes(piece.offset, bytes_, [&](std::int64_t first, std::span<float> into) {
    return fill_values({piece.name, first, matrix.n_elems(), piece.tensor}, into);
  });
}

// Reads the matrix once more, some rows at a time.
Status InitialFill::compute_norms(const RowNorms& norms) {
  constexpr std::int64_t kElemsAtOnce = std::int64_t{1} << 20;
  norms_tensor_ = -1;
  const auto& specs = plan_.tensors.specs;
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == norms.of; });
  STRATA_ASSERT(found != specs.end(), norms.of, " is no tensor of the run");
  const auto tensor = static_cast<std::int32_t>(found - specs.begin());
  const kernels::QuantizedMatrix& matrix = plan_.quantized_of_tensor[static_cast<std::size_t>(tensor)];
  const bool is_quantized = matrix.format != kernels::WeightFormat::full;
  const std::int64_t columns =
      is_quantized ? matrix.columns : plan_.tensors.shapes[static_cast<std::size_t>(tensor)].dim(1);
  if (is_quantized) {
    bytes_.resize(static_cast<std::size_t>(matrix.bytes()));
    STRATA_TRY(quantized_bytes({found->name, 0, matrix.bytes(), tensor}));
  }
  norms_.clear();
  std::vector<float> values;
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kElemsAtOnce / columns);
  for (const LoraPart& part : norms.parts.all())
    for (std::int64_t row = 0; row < part.rows; row += rows_at_once) {
      const std::int64_t rows = std::min(rows_at_once, part.rows - row);
      values.resize(static_cast<std::size_t>(rows * columns));
      STRATA_TRY(read_rows(tensor, part.first_row + row, columns, values));
      norms_.resize(norms_.size() + static_cast<std::size_t>(rows));
      kernels::row_norms(values, columns, norms.dtype, std::span(norms_).last(static_cast<std::size_t>(rows)),
                         pool_);
    }
  return {};
}

// Of a quantized matrix, whose bytes are in bytes_, what it stands for.
Status InitialFill::read_rows(std::int32_t tensor, std::int64_t first, std::int64_t columns,
                              std::span<float> values) {
  const auto& spec = plan_.tensors.specs[static_cast<std::size_t>(tensor)];
  const kernels::QuantizedMatrix& matrix = plan_.quantized_of_tensor[static_cast<std::size_t>(tensor)];
  if (matrix.format == kernels::WeightFormat::full)
    return fill_values({spec.name, first * columns, spec.n_elems, tensor}, values);
  kernels::dequantize_matrix(matrix, bytes_, first * columns, values);
  return {};
}

// The random stream is the parameter's registration index, so the layout does not change the values.
void InitialFill::draw(const StatePiece& piece, std::span<float> values) {
  constexpr std::int64_t kDrawsAtOnce = 4096;  // elements per task
  const auto tensor = static_cast<std::size_t>(piece.tensor);
  const Init& init = plan_.init_of_tensor[tensor];
  const Rng rng(seed_, static_cast<std::uint64_t>(plan_.tensors.param_of_tensor[tensor]));
  const auto n = std::ssize(values);
  pool_.parallel_for((n + kDrawsAtOnce - 1) / kDrawsAtOnce, [&](std::int64_t task) {
    const std::int64_t end = std::min(n, (task + 1) * kDrawsAtOnce);
    for (std::int64_t i = task * kDrawsAtOnce; i < end; ++i)
      values[static_cast<std::size_t>(i)] = drawn(init, rng, static_cast<std::uint64_t>(piece.offset + i));
  });
}

}  // namespace strata::detail
