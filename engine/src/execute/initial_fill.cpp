#include "execute/initial_fill.h"

#include <algorithm>
#include <cmath>

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
