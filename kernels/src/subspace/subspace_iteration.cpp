#include "subspace/subspace_iteration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <strata/dispatch/ranges.h>
#include <strata/kernels/cast_rows.h>

#include "gemm/gemm_tiled.h"
#include "subspace/dense.h"
#include "subspace/row_squares.h"
#include "work_split.h"

namespace strata::kernels::detail {
namespace {

/// [n, inner] [inner, columns] of f32.
Gemm small_product(const float* a, const float* b, float* c, std::int64_t n, std::int64_t columns,
                   std::int64_t inner) {
  return {
      .m = n, .n = columns, .k = inner, .a = a, .lda = inner, .b = b, .ldb = columns, .c = c, .ldc = columns};
}
/// small = vectors products^T.
Gemm rayleigh_quotient(const BasisPart& part, const BasisSpace& space) {
  const std::int64_t n = part.vectors(), length = part.length();
  return {.trans_b = true,
          .m = n,
          .n = n,
          .k = length,
          .a = space.vectors,
          .lda = length,
          .b = space.products,
          .ldb = length,
          .c = space.small,
          .ldc = n};
}

/// Decides from the energies that the products captured, of which each gain is taken as a constant share of
/// the one before.
class Convergence {
 public:
  explicit Convergence(const IterationLimits& limits) : limits_(limits) {}
  bool is_reached(double energy) {
    const double gain = energy - energy_, rest = gain_ > gain ? gain * gain / (gain_ - gain) : HUGE_VAL;
    ++products_;
    // The first energy is no gain, nor is the second one compared with it.
    const bool ends = (products_ > 1 && gain < limits_.gain * energy) ||
                      (products_ > 2 && rest < limits_.rest * energy) || products_ >= limits_.products;
    energy_ = energy;
    gain_ = gain;
    return ends;
  }

 private:
  const IterationLimits& limits_;
  double energy_ = 0, gain_ = 0;
  int products_ = 0;
};

double trace(const float* matrix, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum = sum + static_cast<double>(matrix[i * n + i]);
  return sum;
}

void scale(float* values, std::int64_t n, float factor, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, n, kElementsPerItem, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i) values[i] = values[i] * factor;
  });
}

/// vectors = products - shift * vectors, of vectors whose length is `factor`. Where the shift is half of the
/// smallest captured eigenvalue of H^T H, the directions outside shrink faster beside those inside (Feng, Yu
/// and Xie 2024, arXiv 2404.09276).
void power_step(const BasisPart& part, const BasisSpace& space, double factor, ThreadPool& pool) {
  const std::int64_t n = part.vectors() * part.length();
  const double smallest = smallest_eigenvalue(space.small, part.vectors()) / (factor * factor);
  const auto shift = static_cast<float>(0.5 * std::max(0.0, smallest));
  dispatch::parallel_for_ranges(pool, n, kElementsPerItem, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count; ++i)
      space.vectors[i] = space.products[i] - shift * space.vectors[i];
  });
}

/// The leading vectors: those of the Rayleigh quotient, in order, multiplied by H^T H once more, which
/// `products` has already. Returns the sum of the eigenvalues of the first part.rank.
double take_leading(const BasisPart& part, const BasisSpace& space, const HostBasisSteps& steps) {
  const std::int64_t n = part.vectors(), length = part.length();
  double* const values = space.sums;
  symmetric_eigenvectors(space.small, n, values, space.rotation);
  (void)steps.multiply(small_product(space.rotation, space.products, space.vectors, part.rank, length, n));
  orthonormalize(space.vectors, part.rank, length);
  double captured = 0;
  for (std::int64_t i = 0; i < part.rank; ++i) captured = captured + values[i];
  return captured;
}

}  // namespace

Status HostBasisSteps::multiply(const Gemm& gemm) const {
  gemm_tiled(gemm, nullptr, pool);
  return {};
}
Status HostBasisSteps::widen(const TensorView& rows, float* out) const {
  cast_rows_host({rows, {reinterpret_cast<std::byte*>(out), rows.shape, DType::f32}}, pool);
  return {};
}

double square_norm(const TensorView& rows, double* sums, ThreadPool& pool) {
  const SquareRows squares = square_rows(rows, sums);
  sum_row_squares(squares, rows.dtype, pool);
  double total = 0;
  for (std::int64_t i = 0; i < squares.count(); ++i) total = total + sums[i];
  return total;
}

void start_vectors(const BasisPart& part, const BasisSpace& space, const float* other, std::int64_t n) {
  const std::int64_t length = part.length(), all = part.vectors() * length;
  const bool is_empty =
      other == nullptr || std::all_of(other, other + n * length, [](float x) { return x == 0.0f; });
  const std::int64_t given = is_empty ? 0 : n * length;
  if (given > 0) std::copy(other, other + given, space.vectors);
  for (std::int64_t i = given; i < all; ++i) space.vectors[i] = random_element(static_cast<std::uint64_t>(i));
  orthonormalize(space.vectors, part.vectors(), length);
}

double iterate_subspace(const BasisPart& part, const BasisSpace& space, double squares,
                        const IterationLimits& limits, ThreadPool& pool) {
  const HostBasisSteps steps{pool};
  const double factor = vector_scale(squares);
  for (Convergence convergence(limits);;) {
    scale(space.vectors, part.vectors() * part.length(), static_cast<float>(factor), pool);
    (void)multiply_by_gram(steps, part, space, part.vectors());
    (void)steps.multiply(rayleigh_quotient(part, space));
    if (convergence.is_reached(trace(space.small, part.vectors()))) break;
    power_step(part, space, factor, pool);
    orthonormalize(space.vectors, part.vectors(), part.length());
  }
  return take_leading(part, space, steps) / (factor * factor * squares);
}

void choose_signs(float* vectors, std::int64_t n, std::int64_t length, float* paired,
                  std::int64_t paired_length) {
  for (std::int64_t j = 0; j < n; ++j) {
    float* const vector = vectors + j * length;
    const float* const largest = std::max_element(
        vector, vector + length, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    if (*largest >= 0.0f) continue;
    for (std::int64_t i = 0; i < length; ++i) vector[i] = -vector[i];
    for (std::int64_t i = 0; i < paired_length; ++i)
      paired[j * paired_length + i] = -paired[j * paired_length + i];
  }
}

}  // namespace strata::kernels::detail
