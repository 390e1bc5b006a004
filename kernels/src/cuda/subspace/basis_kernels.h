#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <strata/dispatch/cuda/lanes.h>
#include <strata/runtime/float16.h>

#include "subspace/basis_space.h"
#include "subspace/gradient_squares.h"

/// The arithmetic of find_basis's kernels: for each of n rows a function of lanes and the row, or for each of
/// n elements a function of the element. Tests run them on the host.
namespace strata::kernels::detail {

template <class T>
struct SumRowSquares {
  SquareRows rows;
  template <class Lanes>
  STRATA_DEVICE_INLINE void operator()(const Lanes& lanes, std::int64_t row) const {
    const std::int64_t first = row * rows.length, left = rows.total - first;
    const double sum = square_sum(lanes, static_cast<const T*>(rows.values) + first,
                                  left < rows.length ? left : rows.length);
    if (lanes.is_leader()) rows.sums[row] = sum;
  }
};

struct SumOfSquares {
  const double* sums;
  std::int64_t n;
  double* total;
  template <class Lanes>
  STRATA_DEVICE_INLINE void operator()(const Lanes& lanes, std::int64_t) const {
    const double sum = lanes.template sum<double>(n, [&](std::int64_t i) { return sums[i]; });
    if (lanes.is_leader()) *total = sum;
  }
};

template <class T>
struct WidenElements {
  const T* from;
  float* to;
  STRATA_DEVICE_INLINE void operator()(std::int64_t i) const { to[i] = to_f32(from[i]); }
};

/// The start of the iteration: the previous vectors, and a tenth of their length of random ones, so that a
/// direction to which all of them are orthogonal is found too.
template <class T>
struct StartVectors {
  const T* previous;
  bool is_right;
  std::int64_t rank, length;
  const double* squares;
  float* vectors;
  STRATA_DEVICE_INLINE void operator()(std::int64_t i) const {
    const std::int64_t j = i / length;
    const float before = to_f32(previous[basis_index(is_right, rank, length, j, i % length)]);
    const float unit = sqrtf(12.0f / static_cast<float>(length));
    const float added = *squares == 0.0 ? 0.0f : 0.1f * unit;
    vectors[i] = before + added * random_element(static_cast<std::uint64_t>(i));
  }
};

struct ScaleVectors {
  float* vectors;
  const double* squares;
  STRATA_DEVICE_INLINE void operator()(std::int64_t i) const {
    if (*squares > 0.0) vectors[i] = vectors[i] * static_cast<float>(vector_scale(*squares));
  }
};

/// Where G is zero, the vectors stay.
struct TakeProducts {
  const float* products;
  float* vectors;
  const double* squares;
  STRATA_DEVICE_INLINE void operator()(std::int64_t i) const {
    if (*squares != 0.0) vectors[i] = products[i];
  }
};

/// Vector j, which is being made orthogonal to those before it, and what was measured of it.
struct OrthogonalRow {
  float* vectors;
  std::int64_t length, j;
  float* coefficients;  ///< [j]
  double* norms;        ///< squares: before, after, and after a random vector took its place
  STRATA_DEVICE_INLINE float* values() const { return vectors + j * length; }
  /// Whether hardly anything is left of the vector. Also if it is NaN.
  STRATA_DEVICE_INLINE bool is_dependent() const { return !(norms[1] > 1e-10 * norms[0]); }
};

struct MeasureRow {
  OrthogonalRow row;
  int into;
  template <class Lanes>
  STRATA_DEVICE_INLINE void operator()(const Lanes& lanes, std::int64_t) const {
    const double sum = lanes.template sum<double>(row.length, [&](std::int64_t i) {
      const double value = static_cast<double>(row.values()[i]);
      return value * value;
    });
    if (lanes.is_leader()) row.norms[into] = sum;
  }
};

/// For each vector before vector j. `again`: only if that was replaced.
struct ProjectionCoefficients {
  OrthogonalRow row;
  bool again;
  template <class Lanes>
  STRATA_DEVICE_INLINE void operator()(const Lanes& lanes, std::int64_t k) const {
    if (again && !row.is_dependent()) return;
    const float* const other = row.vectors + k * row.length;
    const double sum = lanes.template sum<double>(row.length, [&](std::int64_t i) {
      return static_cast<double>(other[i]) * static_cast<double>(row.values()[i]);
    });
    if (lanes.is_leader()) row.coefficients[k] = static_cast<float>(sum);
  }
};
struct SubtractProjections {
  OrthogonalRow row;
  bool again;
  STRATA_DEVICE_INLINE void operator()(std::int64_t i) const {
    if (again && !row.is_dependent()) return;
    float value = row.values()[i];
    for (std::int64_t k = 0; k < row.j; ++k)
      value = value - row.coefficients[k] * row.vectors[k * row.length + i];
    row.values()[i] = value;
  }
};

struct NormalizeOrReplace {
  OrthogonalRow row;
  STRATA_DEVICE_INLINE void operator()(std::int64_t i) const {
    float& value = row.values()[i];
    value = row.is_dependent() ? random_element(static_cast<std::uint64_t>(~(row.j * row.length + i)))
                               : static_cast<float>(static_cast<double>(value) / sqrt(row.norms[1]));
  }
};
struct NormalizeReplaced {
  OrthogonalRow row;
  STRATA_DEVICE_INLINE void operator()(std::int64_t i) const {
    if (!row.is_dependent()) return;
    float& value = row.values()[i];
    value = static_cast<float>(static_cast<double>(value) / sqrt(row.norms[2]));
  }
};

/// energies[j] = the product of a vector with what H^T H makes of it.
struct VectorEnergies {
  const float *vectors, *products;
  std::int64_t length;
  double* energies;
  template <class Lanes>
  STRATA_DEVICE_INLINE void operator()(const Lanes& lanes, std::int64_t j) const {
    const double sum = lanes.template sum<double>(length, [&](std::int64_t i) {
      return static_cast<double>(vectors[j * length + i]) * static_cast<double>(products[j * length + i]);
    });
    if (lanes.is_leader()) energies[j] = sum;
  }
};
struct EnergyShare {
  const double* energies;
  std::int64_t rank;
  const double* squares;
  float* share;
  template <class Lanes>
  STRATA_DEVICE_INLINE void operator()(const Lanes& lanes, std::int64_t) const {
    const double sum = lanes.template sum<double>(rank, [&](std::int64_t j) { return energies[j]; });
    if (!lanes.is_leader()) return;
    const double factor = *squares > 0.0 ? vector_scale(*squares) : 1.0;
    const double of_all = sum / (factor * factor * *squares);
    *share = static_cast<float>(*squares == 0.0 || of_all > 1.0 ? 1.0 : of_all);
  }
};

/// Writes vector j with the sign that a basis has; as NaN if G is not finite.
struct WriteVector {
  const float* vectors;
  bool is_right;
  std::int64_t rank, length;
  const double* squares;
  float* basis;
  template <class Lanes>
  STRATA_DEVICE_INLINE void operator()(const Lanes& lanes, std::int64_t j) const {
    const float* const vector = vectors + j * length;
    const float largest = lanes.max(length, 0.0f, [&](std::int64_t i) { return fabsf(vector[i]); });
    const float none = -static_cast<float>(length);
    // Negated, as the smallest index is wanted. Indices are exact in f32.
    const float at = -lanes.max(length, none, [&](std::int64_t i) {
      return fabsf(vector[i]) == largest ? -static_cast<float>(i) : none;
    });
    const bool is_finite = *squares * 0.0 == 0.0;
    const bool flips = is_finite && vector[static_cast<std::int64_t>(at)] < 0.0f;
    lanes.for_each(length, [&](std::int64_t i) {
      const float value = flips ? -vector[i] : vector[i];
      basis[basis_index(is_right, rank, length, j, i)] = is_finite ? value : nanf("");
    });
  }
};

}  // namespace strata::kernels::detail
