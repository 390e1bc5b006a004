#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <strata/kernels/subspace.h>
#include <strata/runtime/str.h>

#include "subspace/dense.h"
#include "subspace/subspace_iteration.h"

namespace strata::kernels {
namespace {

using detail::BasisPart;
using detail::BasisSpace;

// Initial values are computed once, so they get more products than a refresh.
constexpr detail::IterationLimits kLimits = {.gain = 1e-6, .rest = 1e-4, .products = 40};

/// Left and right singular vectors as rows, and the values, in any order.
struct Factors {
  std::vector<float> left, right;
  std::vector<double> values;
};

/// [rank, columns] to [columns, rank], with row order[j] as column j.
std::vector<float> transposed(const std::vector<float>& rows, const std::vector<std::size_t>& order) {
  const std::size_t rank = order.size(), length = rows.size() / rank;
  std::vector<float> columns(rows.size());
  for (std::size_t j = 0; j < rank; ++j)
    for (std::size_t i = 0; i < length; ++i) columns[i * rank + j] = rows[order[j] * length + i];
  return columns;
}

double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum = sum + static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

Factors exact_factors(const TensorView& matrix, std::int64_t rank) {
  Factors f;
  f.left.resize(static_cast<std::size_t>(rank * matrix.shape.dim(0)));
  f.right.resize(static_cast<std::size_t>(rank * matrix.shape.dim(1)));
  f.values.resize(static_cast<std::size_t>(rank));
  detail::exact_vectors(matrix, rank, {f.left.data(), f.right.data(), f.values.data()});
  for (double& value : f.values) value = std::sqrt(value);
  return f;
}

/// Rotates orthonormal `vectors` [rank, length] and their products with H^T [rank, height] so that the
/// products are orthogonal, and turns these into singular vectors.
void separate(std::vector<float>& vectors, std::vector<float>& products, std::vector<double>& values,
              const detail::HostBasisSteps& steps) {
  const auto rank = std::ssize(values), length = std::ssize(vectors) / rank,
             height = std::ssize(products) / rank;
  std::vector<float> small(static_cast<std::size_t>(rank * rank)), rotation(small.size()),
      rotated(vectors.size()), projected(products.size());
  (void)steps.multiply({.trans_b = true,
                        .m = rank,
                        .n = rank,
                        .k = height,
                        .a = products.data(),
                        .lda = height,
                        .b = products.data(),
                        .ldb = height,
                        .c = small.data(),
                        .ldc = rank});
  detail::symmetric_eigenvectors(small.data(), rank, values.data(), rotation.data());
  for (const auto& [from, to, n] : {std::tuple(&vectors, &rotated, length), {&products, &projected, height}})
    (void)steps.multiply({.m = rank,
                          .n = n,
                          .k = rank,
                          .a = rotation.data(),
                          .lda = rank,
                          .b = from->data(),
                          .ldb = n,
                          .c = to->data(),
                          .ldc = n});
  vectors = rotated;
  products = projected;
  detail::orthonormalize(vectors.data(), rank, length);
  detail::orthonormalize(products.data(), rank, height);
  for (std::int64_t j = 0; j < rank; ++j) {
    const float* const product = projected.data() + j * height;
    values[static_cast<std::size_t>(j)] = std::sqrt(dot(product, product, height));
  }
}

Factors approximate_factors(const TensorView& matrix, std::int64_t rank, double squares, ThreadPool& pool) {
  const bool is_right = matrix.shape.dim(0) >= matrix.shape.dim(1);
  const BasisPart part = {matrix, rank, is_right ? SubspaceSide::right : SubspaceSide::left};
  std::vector<double> memory(detail::basis_space(part, nullptr).bytes / sizeof(double));
  const BasisSpace space = detail::basis_space(part, reinterpret_cast<std::byte*>(memory.data()));
  const detail::HostBasisSteps steps{pool};
  detail::start_vectors(part, space, nullptr, 0);
  if (squares > 0.0) (void)detail::iterate_subspace(part, space, squares, kLimits, pool);
  const auto n = static_cast<std::size_t>(rank * part.length());
  Factors f;
  f.values.resize(static_cast<std::size_t>(rank));
  std::vector<float> vectors(space.vectors, space.vectors + n);
  std::vector<float> products(static_cast<std::size_t>(rank * part.height()));
  BasisSpace onto = space;
  onto.projected = products.data();
  const auto* const values = matrix.as<float>();
  (void)steps.multiply(is_right ? detail::right_projection(part, onto, rank, part.n_rows(), values)
                                : detail::left_projection(part, onto, rank, 0, part.n_rows(), values));
  separate(vectors, products, f.values, steps);
  f.left = is_right ? products : vectors;
  f.right = is_right ? vectors : products;
  return f;
}

}  // namespace

Result<TruncatedSvd> truncated_svd(std::span<const float> matrix, std::int64_t rows, std::int64_t columns,
                                   std::int64_t rank, SvdMethod method, ThreadPool& pool) {
  if (rows < 1 || columns < 1 || std::ssize(matrix) != rows * columns)
    return Status::error(Code::invalid, str("truncated_svd: a matrix [", rows, ", ", columns, "] has ",
                                            matrix.size(), " elements"));
  if (rank < 1 || rank > std::min(rows, columns))
    return Status::error(Code::invalid, str("truncated_svd: the rank is ", rank, "; of a matrix [", rows,
                                            ", ", columns, "] it must be 1 to ", std::min(rows, columns)));
  const TensorView view = {
      reinterpret_cast<std::byte*>(const_cast<float*>(matrix.data())), {rows, columns}, DType::f32};
  std::vector<double> sums(static_cast<std::size_t>(rows));
  const double squares = detail::square_norm(view, sums.data(), pool);
  if (!std::isfinite(squares))
    return Status::error(Code::invalid, "truncated_svd: the matrix holds an Inf or a NaN");
  Factors f =
      method == SvdMethod::exact ? exact_factors(view, rank) : approximate_factors(view, rank, squares, pool);
  detail::choose_signs(f.right.data(), rank, columns, f.left.data(), rows);
  std::vector<std::size_t> order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return f.values[a] > f.values[b]; });
  TruncatedSvd svd;
  svd.u = transposed(f.left, order);
  for (const std::size_t j : order) {
    svd.s.push_back(static_cast<float>(f.values[j]));
    svd.vt.insert(svd.vt.end(), f.right.begin() + static_cast<std::ptrdiff_t>(j) * columns,
                  f.right.begin() + static_cast<std::ptrdiff_t>(j + 1) * columns);
  }
  return svd;
}

}  // namespace strata::kernels
