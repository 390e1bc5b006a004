#include "subspace/dense.h"

#include <algorithm>

#define EIGEN_DONT_PARALLELIZE
#define EIGEN_MPL2_ONLY
#include <Eigen/Eigenvalues>
#include <Eigen/QR>

#include <strata/runtime/float16.h>
#include <strata/runtime/memory/alloc_counter.h>

#include "dtype_dispatch.h"

namespace strata::kernels::detail {
namespace {

using Eigen::Index;
using Eigen::Map;
using Eigen::MatrixXd;
using Eigen::MatrixXf;
using Eigen::VectorXd;

/// Eigen's products are blocked by the sizes of the CPU's caches, unless it is told which to assume.
void fix_block_sizes() {
  static const bool done = [] {
    Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 4 << 20);
    return true;
  }();
  (void)done;
}

/// Q of the QR factorization, in place, with the signs of a positive diagonal of R.
template <class Matrix>
void take_q(Eigen::Ref<Matrix> vectors) {
  const Eigen::HouseholderQR<Eigen::Ref<Matrix>> qr(vectors);
  const auto diagonal = qr.matrixQR().diagonal().eval();
  Matrix q = qr.householderQ() * Matrix::Identity(vectors.rows(), vectors.cols());
  for (Index j = 0; j < q.cols(); ++j) {
    if (diagonal[j] < 0)
      vectors.col(j) = -q.col(j);
    else
      vectors.col(j) = q.col(j);
  }
}

/// Columns [first, first + n) of a matrix whose columns are the vectors of the shorter side: rows of the
/// tensor, if those are the shorter ones, and else its columns.
MatrixXd block_of(const TensorView& matrix, bool rows_are_short, Index first, Index n) {
  const Index columns = matrix.shape.dim(1), side = rows_are_short ? matrix.shape.dim(0) : columns;
  MatrixXd block(side, n);
  dispatch_dtype(matrix.dtype, [&]<class T>(std::type_identity<T>) {
    const T* const values = matrix.as<T>();
    for (Index j = 0; j < n; ++j)
      for (Index i = 0; i < side; ++i)
        block(i, j) = static_cast<double>(
            to_f32(values[rows_are_short ? i * columns + first + j : (first + j) * columns + i]));
  });
  return block;
}

/// Calls run(block, first) for blocks of a fixed size along the longer side.
template <class Run>
void for_each_block(const TensorView& matrix, bool rows_are_short, const Run& run) {
  constexpr Index kBlock = 256;
  const Index longer = matrix.shape.dim(rows_are_short ? 1 : 0);
  for (Index first = 0; first < longer; first += kBlock)
    run(block_of(matrix, rows_are_short, first, std::min(kBlock, longer - first)), first);
}

void store(const MatrixXd& columns, float* vectors) {
  if (vectors != nullptr)
    Map<MatrixXf>(vectors, columns.rows(), columns.cols()) = columns.template cast<float>();
}

}  // namespace

void orthonormalize(float* vectors, std::int64_t n, std::int64_t length) {
  const ThirdPartyScope scope;
  fix_block_sizes();
  take_q<MatrixXf>(Map<MatrixXf>(vectors, length, n));
}

void symmetric_eigenvectors(const float* matrix, std::int64_t n, double* values, float* vectors) {
  const ThirdPartyScope scope;
  fix_block_sizes();
  // Row-major and column-major are the same but for the triangle.
  const MatrixXd lower = Map<const MatrixXf>(matrix, n, n).transpose().cast<double>();
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(lower);
  Map<VectorXd>(values, n) = solver.eigenvalues().reverse();
  Map<MatrixXf>(vectors, n, n) = solver.eigenvectors().rowwise().reverse().cast<float>();
}

double smallest_eigenvalue(const float* matrix, std::int64_t n) {
  const ThirdPartyScope scope;
  fix_block_sizes();
  const MatrixXd lower = Map<const MatrixXf>(matrix, n, n).transpose().cast<double>();
  return Eigen::SelfAdjointEigenSolver<MatrixXd>(lower, Eigen::EigenvaluesOnly).eigenvalues()[0];
}

void exact_vectors(const TensorView& matrix, std::int64_t rank, const ExactVectors& out) {
  const ThirdPartyScope scope;
  fix_block_sizes();
  const bool rows_are_short = matrix.shape.dim(0) < matrix.shape.dim(1);
  const Index side = std::min(matrix.shape.dim(0), matrix.shape.dim(1)),
              longer = std::max(matrix.shape.dim(0), matrix.shape.dim(1));
  MatrixXd gram = MatrixXd::Zero(side, side);
  for_each_block(matrix, rows_are_short, [&](const MatrixXd& block, Index) {
    gram.selfadjointView<Eigen::Lower>().rankUpdate(block);
  });
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(gram);
  const MatrixXd shorter = solver.eigenvectors().rightCols(rank).rowwise().reverse();
  if (out.squares != nullptr)
    Map<VectorXd>(out.squares, rank) = solver.eigenvalues().tail(rank).reverse().cwiseMax(0.0);
  float* const of_longer = rows_are_short ? out.right : out.left;
  store(shorter, rows_are_short ? out.left : out.right);
  if (of_longer == nullptr) return;
  MatrixXd projected(longer, rank);
  for_each_block(matrix, rows_are_short, [&](const MatrixXd& block, Index first) {
    projected.middleRows(first, block.cols()).noalias() = block.transpose() * shorter;
  });
  take_q<MatrixXd>(projected);
  store(projected, of_longer);
}

}  // namespace strata::kernels::detail
