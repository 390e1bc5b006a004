#pragma once

#include <strata/runtime/status.h>

#include "cuda/subspace/basis_kernels.h"

/// The order of find_basis's kernels and GEMMs on CUDA. Nothing waits for a result, so the number of products
/// is fixed. `Device` has rows(n, f) and elements(n, f), which run f for each of n, and multiply(gemm);
/// dtypes are those of `dispatch(dtype, body)`.
namespace strata::kernels::detail {

inline constexpr int kDeviceProducts = 8;

template <class Device>
struct BasisSteps {
  const Device& device;

  Status multiply(const Gemm& gemm) const { return device.multiply(gemm); }
  Status widen(const TensorView& rows, float* out) const {
    return device.dispatch(rows.dtype, [&]<class T>(std::type_identity<T>) {
      return device.elements(rows.n_elems(), WidenElements<T>{rows.template as<T>(), out});
    });
  }
};

template <class Device>
Status project_twice(const Device& device, const OrthogonalRow& row, bool again) {
  for (int pass = 0; pass < 2 && row.j > 0; ++pass) {
    STRATA_TRY(device.rows(row.j, ProjectionCoefficients{row, again}));
    STRATA_TRY(device.elements(row.length, SubtractProjections{row, again}));
  }
  return {};
}

/// Classical Gram-Schmidt with reorthogonalization (Giraud, Langou and Rozloznik 2005). A vector that depends
/// on those before it is replaced by a random one.
template <class Device>
Status orthonormalize_rows(const Device& device, float* vectors, std::int64_t n, std::int64_t length,
                           float* coefficients, double* norms) {
  for (std::int64_t j = 0; j < n; ++j) {
    const OrthogonalRow row = {vectors, length, j, coefficients, norms};
    STRATA_TRY(device.rows(1, MeasureRow{row, 0}));
    STRATA_TRY(project_twice(device, row, false));
    STRATA_TRY(device.rows(1, MeasureRow{row, 1}));
    STRATA_TRY(device.elements(length, NormalizeOrReplace{row}));
    STRATA_TRY(project_twice(device, row, true));
    STRATA_TRY(device.rows(1, MeasureRow{row, 2}));
    STRATA_TRY(device.elements(length, NormalizeReplaced{row}));
  }
  return {};
}

/// The memory that a part writes.
struct BasisOutput {
  const TensorView& previous;
  float *basis, *energy;
  std::int64_t first;  ///< element of `previous` and `basis`
};

/// Orthogonal iteration from the previous basis, without further vectors, which need an eigenproblem to leave
/// them out again: its vectors come in the order of their energies.
template <class Device>
Status find_basis_of_part(const Device& device, const BasisPart& part, const BasisSpace& space,
                          const BasisOutput& out) {
  const bool is_right = part.side == SubspaceSide::right;
  const std::int64_t rank = part.rank, length = part.length(), n = rank * length;
  double* const energies = space.sums + part.n_rows();
  double *const squares = energies + rank, *const norms = squares + 1;
  const SquareRows rows = square_rows(part.rows, space.sums);
  STRATA_TRY(device.dispatch(part.rows.dtype, [&]<class T>(std::type_identity<T>) {
    return device.rows(rows.count(), SumRowSquares<T>{rows});
  }));
  STRATA_TRY(device.rows(1, SumOfSquares{rows.sums, rows.count(), squares}));
  STRATA_TRY(device.dispatch(out.previous.dtype, [&]<class T>(std::type_identity<T>) {
    const T* const previous = out.previous.template as<T>() + out.first;
    return device.elements(n, StartVectors<T>{previous, is_right, rank, length, squares, space.vectors});
  }));
  STRATA_TRY(orthonormalize_rows(device, space.vectors, rank, length, space.small, norms));
  for (int product = 0; product < kDeviceProducts; ++product) {
    STRATA_TRY(device.elements(n, ScaleVectors{space.vectors, squares}));
    STRATA_TRY(multiply_by_gram(BasisSteps<Device>{device}, part, space, rank));
    if (product == kDeviceProducts - 1) {
      STRATA_TRY(device.rows(rank, VectorEnergies{space.vectors, space.products, length, energies}));
      STRATA_TRY(device.rows(1, EnergyShare{energies, rank, squares, out.energy}));
    }
    STRATA_TRY(device.elements(n, TakeProducts{space.products, space.vectors, squares}));
    STRATA_TRY(orthonormalize_rows(device, space.vectors, rank, length, space.small, norms));
  }
  return device.rows(rank,
                     WriteVector{space.vectors, is_right, rank, length, squares, out.basis + out.first});
}

template <class Device>
Status find_bases(const Device& device, const FindBasisArgs& a) {
  std::int64_t first = 0;
  float* energy = a.energy.as<float>();
  for (const LoraPart& of : a.parts.all()) {
    const BasisPart part = basis_part(a.g, of, a.side);
    STRATA_TRY(find_basis_of_part(device, part, basis_space(part, a.workspace.data),
                                  {a.previous, a.basis.as<float>(), energy++, first}));
    first += part.rank * part.length();
  }
  return {};
}

template <class Device>
Status find_outside(const Device& device, const GradientOutsideArgs& a) {
  STRATA_TRY(for_each_square_rows(a, [&](const SquareRows& rows, DType dtype) {
    return device.dispatch(dtype, [&]<class T>(std::type_identity<T>) {
      return device.rows(rows.count(), SumRowSquares<T>{rows});
    });
  }));
  const OutsideSums sums = outside_sums(a.parts, dispatch::row_length(a.g), a.side, a.workspace.data);
  return device.rows(1, WriteOutside{sums, a.rho.as<float>()});
}

}  // namespace strata::kernels::detail
