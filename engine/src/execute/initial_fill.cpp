#include "execute/initial_fill.h"

#include <algorithm>
#include <cmath>

#include <strata/kernels/dora.h>
#include <strata/kernels/subspace.h>
#include <strata/kernels/weight_quant.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>
#include <strata/simd/normal.h>

namespace strata::detail {
namespace {

// Elements [first, first + values.size()) of a tensor.
void draw_values(const Init& init, std::uint64_t seed, std::uint64_t stream, std::uint64_t first,
                 std::span<float> values) {
  if (init.std == 0) return std::fill(values.begin(), values.end(), init.mean);
  if (init.is_uniform) {
    const Rng rng(seed, stream);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = init.mean + init.std * std::sqrt(3.0f) * (2 * rng.uniform(first + i) - 1);
    return;
  }
  simd::fill_normal(seed, stream, first, values);
  for (float& value : values) value = init.mean + init.std * value;
}

bool are_of_one_product(const PrincipalFactor& x, const PrincipalFactor& y) {
  return x.of == y.of && x.parts == y.parts && x.scale == y.scale && x.dtype == y.dtype &&
         x.method == y.method;
}

Status round_to(DType dtype, std::span<float> values) {
  std::vector<std::byte> rounded(values.size() * size_of(dtype));
  STRATA_TRY(narrow_from_f32(values, dtype, rounded));
  return widen_to_f32(dtype, rounded, values);
}

// A = (S/s)^(1/2) V^T and B = U (S/s)^(1/2) of one part.
Status append_factors(const kernels::TruncatedSvd& svd, const PrincipalFactor& factor, std::vector<float>& a,
                      std::vector<float>& b) {
  const std::size_t rank = svd.s.size(), columns = svd.vt.size() / rank, a0 = a.size(), b0 = b.size();
  const double scale = static_cast<double>(factor.scale);
  std::vector<double> roots(rank);
  std::transform(svd.s.begin(), svd.s.end(), roots.begin(),
                 [&](float value) { return std::sqrt(static_cast<double>(value) / scale); });
  const auto root_times = [&](std::size_t i, float value) {
    return static_cast<float>(roots[i] * static_cast<double>(value));
  };
  for (std::size_t i = 0; i < svd.vt.size(); ++i) a.push_back(root_times(i / columns, svd.vt[i]));
  for (std::size_t i = 0; i < svd.u.size(); ++i) b.push_back(root_times(i % rank, svd.u[i]));
  STRATA_TRY(round_to(factor.dtype, std::span(a).subspan(a0)));
  return round_to(factor.dtype, std::span(b).subspan(b0));
}

}  // namespace

Status InitialFill::fill(const StatePiece& piece, std::span<float> values) {
  const bool is_quantized =
      plan_.quantized_of_tensor[static_cast<std::size_t>(piece.tensor)].format != kernels::WeightFormat::full;
  return is_quantized ? fill_quantized(piece, values) : fill_values(piece, values);
}

// Where ranks share the tensors of the model, `piece` is one of this rank's part of a tensor.
Status InitialFill::fill_values(const StatePiece& piece, std::span<float> values) {
  if (plan_.tensors.parts.empty()) return fill_whole(piece, values);
  const TensorPart& part = plan_.tensors.parts[static_cast<std::size_t>(piece.tensor)];
  Status filled;
  part.for_each_run(
      piece.offset, std::ssize(values), [&](std::int64_t whole, std::int64_t own, std::int64_t n) {
        if (filled.is_ok())
          filled = fill_whole(
              {piece.name, whole, part.whole.n_elems(), piece.tensor},
              values.subspan(static_cast<std::size_t>(own - piece.offset), static_cast<std::size_t>(n)));
      });
  return filled;
}

Status InitialFill::fill_whole(const StatePiece& piece, std::span<float> values) {
  const Init& init = plan_.init_of_tensor[static_cast<std::size_t>(piece.tensor)];
  if (given_ && !init.is_constant) {
    STRATA_TRY_ASSIGN(const bool is_given, given_(piece, values));
    if (is_given) return Status::ok();
  }
  if (!init.norms.of.empty()) {
    if (norms_tensor_ != piece.tensor) STRATA_TRY(compute_norms(init.norms));
    norms_tensor_ = piece.tensor;
    std::copy_n(norms_.begin() + piece.offset, values.size(), values.begin());
    return {};
  }
  if (!init.principal.of.empty()) {
    if (!are_of_one_product(factor_, init.principal)) STRATA_TRY(compute_factors(init.principal));
    const std::vector<float>& factor = factors_[static_cast<std::size_t>(init.principal.side)];
    std::copy_n(factor.begin() + piece.offset, values.size(), values.begin());
    return {};
  }
  if (!init.picked.of.empty()) return fill_picked(piece, init.picked, values);
  if (!init.copy_of.empty()) return fill_whole(renamed(piece, init.copy_of), values);
  if (init.one_hot.empty())
    draw(piece, values);
  else
    fill_one_hot(piece, init.one_hot, values);
  return {};
}

// The matrix's own initial values are read row by row.
Status InitialFill::fill_picked(const StatePiece& piece, const PickedRows& picked, std::span<float> values) {
  StatePiece from = renamed(piece, picked.of);
  const auto tensor = static_cast<std::size_t>(from.tensor);
  from.n_elems = plan_.tensors.parts.empty() ? plan_.tensors.specs[tensor].n_elems
                                             : plan_.tensors.parts[tensor].whole.n_elems();
  for (std::size_t done = 0; done < values.size();) {
    const std::int64_t at = piece.offset + static_cast<std::int64_t>(done), column = at % picked.columns;
    const auto n = std::min(values.size() - done, static_cast<std::size_t>(picked.columns - column));
    const std::int64_t row = picked.rows[static_cast<std::size_t>(at / picked.columns)];
    from.offset = row * picked.columns + column;
    STRATA_TRY(fill_whole(from, values.subspan(done, n)));
    done += n;
  }
  return {};
}

void InitialFill::fill_one_hot(const StatePiece& piece, std::span<const std::int64_t> rows,
                               std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0f);
  for (std::int64_t column = 0; column < std::ssize(rows); ++column) {
    const std::int64_t at = rows[static_cast<std::size_t>(column)] * std::ssize(rows) + column - piece.offset;
    if (at >= 0 && at < std::ssize(values)) values[static_cast<std::size_t>(at)] = 1;
  }
}

// The same elements of another parameter.
StatePiece InitialFill::renamed(const StatePiece& piece, std::string_view name) const {
  const auto& specs = plan_.tensors.specs;
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == name; });
  STRATA_ASSERT(found != specs.end(), name, " is no tensor of the run");
  return {found->name, piece.offset, piece.n_elems, static_cast<std::int32_t>(found - specs.begin())};
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

Result<InitialFill::Matrix> InitialFill::open_matrix(std::string_view name) {
  const auto& specs = plan_.tensors.specs;
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == name; });
  STRATA_ASSERT(found != specs.end(), name, " is no tensor of the run");
  const auto tensor = static_cast<std::int32_t>(found - specs.begin());
  const kernels::QuantizedMatrix& matrix = plan_.quantized_of_tensor[static_cast<std::size_t>(tensor)];
  if (matrix.format == kernels::WeightFormat::full)
    return Matrix{tensor, plan_.tensors.shapes[static_cast<std::size_t>(tensor)].dim(1)};
  bytes_.resize(static_cast<std::size_t>(matrix.bytes()));
  STRATA_TRY(quantized_bytes({found->name, 0, matrix.bytes(), tensor}));
  return Matrix{tensor, matrix.columns};
}

Status InitialFill::read_rows(const Matrix& of, std::int64_t first, std::span<float> values) {
  const auto& spec = plan_.tensors.specs[static_cast<std::size_t>(of.tensor)];
  const kernels::QuantizedMatrix& matrix = plan_.quantized_of_tensor[static_cast<std::size_t>(of.tensor)];
  if (matrix.format == kernels::WeightFormat::full)
    return fill_values({spec.name, first * of.columns, spec.n_elems, of.tensor}, values);
  kernels::dequantize_matrix(matrix, bytes_, first * of.columns, values);
  return {};
}

// Reads the matrix once more, some rows at a time.
Status InitialFill::compute_norms(const RowNorms& norms) {
  constexpr std::int64_t kElemsAtOnce = std::int64_t{1} << 20;
  norms_tensor_ = -1;
  STRATA_TRY_ASSIGN(const Matrix matrix, open_matrix(norms.of));
  norms_.clear();
  std::vector<float> values;
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kElemsAtOnce / matrix.columns);
  for (const LoraPart& part : norms.parts.all())
    for (std::int64_t row = 0; row < part.rows; row += rows_at_once) {
      const std::int64_t rows = std::min(rows_at_once, part.rows - row);
      values.resize(static_cast<std::size_t>(rows * matrix.columns));
      STRATA_TRY(read_rows(matrix, part.first_row + row, values));
      norms_.resize(norms_.size() + static_cast<std::size_t>(rows));
      kernels::row_norms(values, matrix.columns, norms.dtype,
                         std::span(norms_).last(static_cast<std::size_t>(rows)), pool_);
    }
  return {};
}

// Both factors at once; they are kept until those of another matrix are asked for.
Status InitialFill::compute_factors(const PrincipalFactor& factor) {
  factor_ = {};
  std::vector<float>& a = factors_[static_cast<std::size_t>(PrincipalFactor::Side::a)];
  std::vector<float>& b = factors_[static_cast<std::size_t>(PrincipalFactor::Side::b)];
  a.clear();
  b.clear();
  STRATA_TRY_ASSIGN(const Matrix matrix, open_matrix(factor.of));
  std::vector<float> rows;
  for (const LoraPart& part : factor.parts.all()) {
    rows.resize(static_cast<std::size_t>(part.rows * matrix.columns));
    STRATA_TRY(read_rows(matrix, part.first_row, rows));
    auto svd = kernels::truncated_svd(rows, part.rows, matrix.columns, part.rank, factor.method, pool_);
    if (!svd.has_value())
      return svd.status().annotate(str("the principal part of ", factor.of, ", rows ", part.first_row, " to ",
                                       part.first_row + part.rows));
    STRATA_TRY(append_factors(*svd, factor, a, b));
  }
  factor_ = factor;
  return {};
}

// The random stream is the parameter's registration index, so the layout does not change the values.
void InitialFill::draw(const StatePiece& piece, std::span<float> values) {
  constexpr std::int64_t kDrawsAtOnce = 4096;  // elements per task
  const auto tensor = static_cast<std::size_t>(piece.tensor);
  const Init& init = plan_.init_of_tensor[tensor];
  const auto stream = static_cast<std::uint64_t>(plan_.tensors.param_of_tensor[tensor]);
  const auto n = std::ssize(values);
  pool_.parallel_for((n + kDrawsAtOnce - 1) / kDrawsAtOnce, [&](std::int64_t task) {
    const std::int64_t first = task * kDrawsAtOnce;
    draw_values(init, seed_, stream, static_cast<std::uint64_t>(piece.offset + first),
                values.subspan(static_cast<std::size_t>(first),
                               static_cast<std::size_t>(std::min(kDrawsAtOnce, n - first))));
  });
}

}  // namespace strata::detail
