#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <strata/kernels/subspace.h>

#include <strata/runtime/str.h>

#include "support/op_test.h"

/// Matrices with known singular values and vectors, and what bases capture of them, in f64.
namespace strata::test {

/// n orthonormal vectors of `length`, one after the other.
inline std::vector<double> orthonormal_vectors(std::int64_t n, std::int64_t length, std::uint64_t seed) {
  Values random(seed);
  std::vector<double> v(static_cast<std::size_t>(n * length));
  for (double& x : v) x = random.next();
  const auto dot = [&](std::int64_t a, std::int64_t b) {
    double sum = 0;
    for (std::int64_t i = 0; i < length; ++i)
      sum += v[static_cast<std::size_t>(a * length + i)] * v[static_cast<std::size_t>(b * length + i)];
    return sum;
  };
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t k = 0; k < 2 * j; ++k) {  // twice each
      const double c = dot(k % j, j);
      for (std::int64_t i = 0; i < length; ++i)
        v[static_cast<std::size_t>(j * length + i)] -= c * v[static_cast<std::size_t>(k % j * length + i)];
    }
    const double norm = std::sqrt(dot(j, j));
    for (std::int64_t i = 0; i < length; ++i) v[static_cast<std::size_t>(j * length + i)] /= norm;
  }
  return v;
}

/// U diag(values) V^T.
struct KnownMatrix {
  std::int64_t rows, columns;
  std::vector<double> s;      ///< [min(rows, columns)], descending
  std::vector<double> u, v;   ///< vectors one after the other
  std::vector<float> values;  ///< [rows, columns]
  double top_energy(std::int64_t rank) const {
    double sum = 0;
    for (std::int64_t j = 0; j < rank; ++j)
      sum += s[static_cast<std::size_t>(j)] * s[static_cast<std::size_t>(j)];
    return sum;
  }
};
inline KnownMatrix known_matrix(std::int64_t rows, std::int64_t columns,
                                const std::function<double(std::int64_t)>& value, std::uint64_t seed = 1) {
  const std::int64_t n = std::min(rows, columns);
  KnownMatrix m{
      rows, columns, {}, orthonormal_vectors(n, rows, seed), orthonormal_vectors(n, columns, seed + 1), {}};
  for (std::int64_t j = 0; j < n; ++j) m.s.push_back(value(j));
  std::vector<double> sum(static_cast<std::size_t>(rows * columns));
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t k = 0; k < columns; ++k)
        sum[static_cast<std::size_t>(i * columns + k)] += m.s[static_cast<std::size_t>(j)] *
                                                          m.u[static_cast<std::size_t>(j * rows + i)] *
                                                          m.v[static_cast<std::size_t>(j * columns + k)];
  m.values.assign(sum.begin(), sum.end());
  return m;
}

/// Kinds of spectra, of gradients and of what is hard.
struct Spectrum {
  const char* name;
  double (*value)(std::int64_t j);
};
inline const Spectrum kSpectra[] = {
    {"flat", [](std::int64_t) { return 1.0; }},
    {"slow", [](std::int64_t j) { return 1.0 / std::sqrt(1.0 + static_cast<double>(j)); }},
    {"fast", [](std::int64_t j) { return std::pow(0.7, static_cast<double>(j)); }},
    {"step", [](std::int64_t j) { return j < 5 ? 10.0 : 0.1; }},
    {"rank 3", [](std::int64_t j) { return j < 3 ? 1.0 : 0.0; }},
};

/// A matrix with one basis, and calls of its op.
struct BasisProblem {
  std::int64_t rows, columns, rank;
  kernels::SubspaceSide side;
  kernels::SvdMethod method = kernels::SvdMethod::subspace;
  DType dtype = DType::f32;

  bool is_right() const { return side == kernels::SubspaceSide::right; }
  std::int64_t length() const { return is_right() ? columns : rows; }
  Shape basis_shape() const { return is_right() ? Shape{rank, columns} : Shape{rows * rank}; }
  kernels::LoraParts parts() const { return {{{{0, rows, rank}}}, 1}; }
  std::vector<float> no_basis() const {
    return std::vector<float>(static_cast<std::size_t>(rank * length()));
  }
  /// Element i of vector j.
  std::size_t index(std::int64_t j, std::int64_t i) const {
    return static_cast<std::size_t>(is_right() ? j * columns + i : i * rank + j);
  }
};
struct FoundBasis {
  std::vector<float> basis;
  float energy;
};
inline FoundBasis find_basis(const BasisProblem& p, const std::vector<float>& g,
                             const std::vector<float>& previous, int threads = 2) {
  Tensor matrix({p.rows, p.columns}, g, p.dtype), before(p.basis_shape(), previous),
      basis = Tensor::unwritten(p.basis_shape()), energy = Tensor::unwritten({1});
  Workspace space(kernels::find_basis_workspace_bytes(p.parts(), p.columns, p.side, p.dtype));
  kernels::find_basis_host(
      {matrix.view(), before.view(), basis.view(), energy.view(), space.view(), p.parts(), p.side, p.method},
      *pool(threads));
  return {basis.values(), energy.values()[0]};
}

/// The largest difference of the products of a basis' vectors from those of orthonormal ones.
inline double orthonormality_error(const BasisProblem& p, const std::vector<float>& basis) {
  double worst = 0;
  for (std::int64_t a = 0; a < p.rank; ++a)
    for (std::int64_t b = 0; b <= a; ++b) {
      double sum = a == b ? -1.0 : 0.0;
      for (std::int64_t i = 0; i < p.length(); ++i)
        sum += static_cast<double>(basis[p.index(a, i)]) * static_cast<double>(basis[p.index(b, i)]);
      worst = std::isnan(sum) ? HUGE_VAL : std::max(worst, std::fabs(sum));
    }
  return worst;
}
/// The energy of G in a subspace, of one vector or of all.
inline double energy_of(const BasisProblem& p, const std::vector<float>& g, const std::vector<float>& basis,
                        std::int64_t j) {
  double energy = 0;
  for (std::int64_t o = 0; o < (p.is_right() ? p.rows : p.columns); ++o) {
    double sum = 0;
    for (std::int64_t i = 0; i < p.length(); ++i)
      sum += static_cast<double>(
                 g[static_cast<std::size_t>(p.is_right() ? o * p.columns + i : i * p.columns + o)]) *
             static_cast<double>(basis[p.index(j, i)]);
    energy += sum * sum;
  }
  return energy;
}
inline double energy_of(const BasisProblem& p, const std::vector<float>& g, const std::vector<float>& basis) {
  double energy = 0;
  for (std::int64_t j = 0; j < p.rank; ++j) energy += energy_of(p, g, basis, j);
  return energy;
}
inline double square_sum(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
  return sum;
}
/// Whether the entry of largest magnitude of each vector, the first of several, is positive.
inline bool has_signs_of_a_basis(const BasisProblem& p, const std::vector<float>& basis) {
  for (std::int64_t j = 0; j < p.rank; ++j) {
    float largest = 0;
    for (std::int64_t i = 0; i < p.length(); ++i)
      if (std::fabs(basis[p.index(j, i)]) > std::fabs(largest)) largest = basis[p.index(j, i)];
    if (!(largest > 0)) return false;
  }
  return true;
}

}  // namespace strata::test
