#pragma once

#include <cstdint>

#include <strata/runtime/tensor_view.h>

/// Dense linear algebra on the calling thread, by Eigen. Bits depend neither on threads nor on the CPU. Input
/// is finite. Vectors are the rows of row-major matrices. Errors of allocation are thrown.
namespace strata::kernels::detail {

/// Makes `n` vectors of `length` >= n values orthonormal, so that the first k vectors span what they did for
/// each k (a vector that depends on those before it becomes any that is orthogonal to them). In place.
void orthonormalize(float* vectors, std::int64_t n, std::int64_t length);

/// Eigenvectors of a symmetric matrix [n, n], of which the lower triangle is read, in the order of descending
/// eigenvalues. `values` [n], `vectors` [n, n].
void symmetric_eigenvectors(const float* matrix, std::int64_t n, double* values, float* vectors);
/// The smallest eigenvalue alone.
double smallest_eigenvalue(const float* matrix, std::int64_t n);

/// The leading singular vectors of a matrix of a stored dtype, in f64, from the eigenvectors of the product
/// of its shorter side with itself. Null: not needed.
struct ExactVectors {
  float* left = nullptr;      ///< [rank, rows]
  float* right = nullptr;     ///< [rank, columns]
  double* squares = nullptr;  ///< [rank] of the singular values
};
void exact_vectors(const TensorView& matrix, std::int64_t rank, const ExactVectors& out);

}  // namespace strata::kernels::detail
