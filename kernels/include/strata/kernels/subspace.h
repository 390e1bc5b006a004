#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <strata/kernels/lora_parts.h>
#include <strata/kernels/subspace_method.h>
#include <strata/runtime/backend/backend.h>
#include <strata/runtime/status.h>
#include <strata/runtime/tensor_view.h>

namespace strata::kernels {

// Low-rank subspaces of gradients (GaLore; Zhao et al. 2024, arXiv 2403.03507). A part is a range of rows of
// the gradient G [N, K] of a matrix, with a basis of its own. A basis is orthonormal, in the order of
// descending singular values; the entry of largest magnitude of each vector (the first, if there are several)
// is positive, so that a basis is determined where singular values differ.

/// Computes a basis of the leading left or right singular vectors of each part of G.
///
/// The subspace method starts at the previous basis, or at fixed random vectors if that is all zero, together
/// with a few more random vectors, and multiplies by G^T G until what the captured energy is still expected
/// to grow by is less than 0.8 % of it; on CUDA a fixed number of times. It then captures at least 0.99 of
/// the energy that the exact basis does, also of noise. Bits depend on the same as those of linear.h; those
/// of the exact method do not depend on the instruction set. A part that is all zero gets the previous basis,
/// made orthonormal; a part with an Inf or a NaN gets a basis of NaN. The exact method allocates several f64
/// matrices of the shorter side.
struct FindBasisArgs {
  TensorView g;          ///< stored dtype (embedding.h) [N, K]
  TensorView previous;   ///< stored dtype, as basis
  TensorView basis;      ///< f32, written; right: [sum of ranks, K]; left: by part [rows, rank]
  TensorView energy;     ///< f32 [parts], written: the share of the part's |G|^2 that the basis captures, or
                         ///< of the subspace method a lower bound of it; 1 for a part that is all zero
  BufferView workspace;  ///< find_basis_workspace_bytes(), 256-aligned
  LoraParts parts;       ///< a rank is at most min(rows, K)
  SubspaceSide side = SubspaceSide::right;
  SvdMethod method = SvdMethod::subspace;
};
/// Errors: `invalid`; `unsupported` for the exact method on CUDA.
Status find_basis_async(Backend& backend, Stream& stream, const FindBasisArgs& args);
void find_basis_host(const FindBasisArgs& args, ThreadPool& pool);
/// `columns`: K; `dtype`: of g.
std::size_t find_basis_workspace_bytes(const LoraParts& parts, std::int64_t columns, SubspaceSide side,
                                       DType dtype) noexcept;

/// rho = sqrt(max(0, sum of the parts' |G|^2 - |r|^2)): the norm of what is left of G outside of the
/// subspaces, so that |r|^2 + rho^2 is |G|^2. Squares are summed in f32 over runs of 1024 and in f64 beyond;
/// an Inf or a NaN makes rho one that is not finite. Bits do not depend on the instruction set.
struct GradientOutsideArgs {
  TensorView g;          ///< stored dtype [N, K]
  TensorView r;          ///< stored dtype; right: by part [rows, rank]; left: [sum of ranks, K]
  TensorView rho;        ///< f32 [1], written
  BufferView workspace;  ///< gradient_outside_workspace_bytes(), 256-aligned
  LoraParts parts;
  SubspaceSide side = SubspaceSide::right;
};
Status gradient_outside_async(Backend& backend, Stream& stream, const GradientOutsideArgs& args);
void gradient_outside_host(const GradientOutsideArgs& args, ThreadPool& pool);
/// `columns`: K.
std::size_t gradient_outside_workspace_bytes(const LoraParts& parts, std::int64_t columns,
                                             SubspaceSide side) noexcept;

/// The leading singular values of a matrix [rows, columns] with their vectors: U diag(s) V^T is its best
/// approximation of that rank, or nearly so with the subspace method.
struct TruncatedSvd {
  std::vector<float> u;   ///< [rows, rank], orthonormal columns
  std::vector<float> s;   ///< [rank], descending, >= 0
  std::vector<float> vt;  ///< [rank, columns], orthonormal rows, signs as those of a basis
};
/// Runs on the host and allocates memory; for initial values of adapters (PiSSA; Meng et al. 2024, arXiv
/// 2404.02948). The subspace method iterates until that is less than 1e-4. Bits depend on the
/// same as those of find_basis. Errors: `invalid` if the rank is not from 1 to min(rows, columns), the
/// matrix has another number of elements, or one of them is an Inf or a NaN.
Result<TruncatedSvd> truncated_svd(std::span<const float> matrix, std::int64_t rows, std::int64_t columns,
                                   std::int64_t rank, SvdMethod method, ThreadPool& pool);

}  // namespace strata::kernels
