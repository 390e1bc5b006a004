#pragma once

#include <cstdint>

#include <strata/runtime/threads/thread_pool.h>

#include "subspace/basis_space.h"

/// Randomized subspace iteration on the host.
namespace strata::kernels::detail {

/// When the iteration ends.
struct IterationLimits {
  double gain = 1e-3;  ///< a product raised the captured energy by less than this share of it,
  double rest = 8e-3;  ///< or by so much less than the one before that all others together would, too,
  int products = 12;   ///< or there were as many
};

/// Turns the vectors of `space`, orthonormal ones, into leading right singular vectors of H: the first
/// part.rank of them are its result, in order. `squares`: |G|^2, finite and positive. Returns at least the
/// share of it that they capture. Allocates only within Eigen.
double iterate_subspace(const BasisPart& part, const BasisSpace& space, double squares,
                        const IterationLimits& limits, ThreadPool& pool);

/// Replaces the vectors of `space` by the first `n` of `other` [n, length], or by random ones if that is null
/// or all zero, followed by random ones, and makes them orthonormal.
void start_vectors(const BasisPart& part, const BasisSpace& space, const float* other, std::int64_t n);

/// Makes the entry of largest magnitude of each vector positive, and changes the sign of the paired vector
/// with it, if there is one.
void choose_signs(float* vectors, std::int64_t n, std::int64_t length, float* paired = nullptr,
                  std::int64_t paired_length = 0);

/// |rows|^2, or an Inf or a NaN if one of them is.
double square_norm(const TensorView& rows, double* sums, ThreadPool& pool);

/// The steps of the subspace iteration on the host: multiplying and widening.
struct HostBasisSteps {
  ThreadPool& pool;
  Status multiply(const Gemm& gemm) const;
  Status widen(const TensorView& rows, float* out) const;
};

}  // namespace strata::kernels::detail
