#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <strata/simd/math/host_device.h>
#include <strata/kernels/subspace.h>
#include <strata/runtime/dtype.h>

#include "gemm/gemm.h"
#include "adapters/lora_gemms.h"
#include "quant/quantized_gemms.h"

/// The products of a block of vectors with G^T G, by the host and by CUDA. A block is [vectors, length] with
/// its vectors as rows, whatever the side is. H is G [N, K] for the right side, and G^T for the left: vectors
/// are as long as a row of H.
namespace strata::kernels::detail {

/// Random vectors beyond the rank, with which the iteration needs fewer steps (Halko et al. 2009, section
/// 4.2).
inline constexpr std::int64_t kOversampling = 8;

/// A part of G, and the sizes of its problem.
struct BasisPart {
  TensorView rows;  ///< [rows of the part, K]
  std::int64_t rank = 0;
  SubspaceSide side = SubspaceSide::right;

  std::int64_t n_rows() const noexcept { return rows.shape.dim(0); }
  std::int64_t columns() const noexcept { return rows.shape.dim(1); }
  std::int64_t length() const noexcept { return side == SubspaceSide::right ? columns() : n_rows(); }
  std::int64_t height() const noexcept { return side == SubspaceSide::right ? n_rows() : columns(); }
  std::int64_t vectors() const noexcept {
    return std::min(rank + kOversampling, std::min(n_rows(), columns()));
  }
  /// Rows that are multiplied at once: all, unless they have to be widened to f32.
  std::int64_t panel_rows() const noexcept {
    return rows.dtype == DType::f32 ? n_rows() : panel_extent(n_rows(), columns());
  }
};
inline BasisPart basis_part(const TensorView& g, const LoraPart& part, SubspaceSide side) noexcept {
  const std::int64_t columns = g.shape.dim(-1);
  return {{static_cast<std::byte*>(at(g, part.first_row * columns)), {part.rows, columns}, g.dtype},
          part.rank,
          side};
}

/// The arrays in the workspace of one part; parts use the same memory one after the other.
struct BasisSpace {
  float* vectors = nullptr;    ///< [vectors, length]
  float* products = nullptr;   ///< [vectors, length]
  float* projected = nullptr;  ///< vectors H^T: [vectors, rows of a panel], or [vectors, K]
  float* panel = nullptr;      ///< rows of G in f32; null if they need not be widened
  float* small = nullptr;      ///< [vectors, vectors]
  float* rotation = nullptr;   ///< [vectors, vectors]
  double* sums = nullptr;      ///< sums of the rows and of the vectors, and four more
  std::size_t bytes = 0;
};
inline BasisSpace basis_space(const BasisPart& part, std::byte* data) noexcept {
  const std::int64_t vectors = part.vectors();
  BasisSpace space;
  const auto take = [&](std::int64_t elems, std::size_t elem_bytes) {
    std::byte* const start = data == nullptr ? nullptr : data + space.bytes;
    space.bytes += (static_cast<std::size_t>(elems) * elem_bytes + 255) / 256 * 256;
    return start;
  };
  const auto floats = [&](std::int64_t n) { return reinterpret_cast<float*>(take(n, sizeof(float))); };
  space.vectors = floats(vectors * part.length());
  space.products = floats(vectors * part.length());
  space.projected = floats(vectors * (part.side == SubspaceSide::right ? part.panel_rows() : part.columns()));
  if (part.rows.dtype != DType::f32) space.panel = floats(part.panel_rows() * part.columns());
  space.small = floats(vectors * vectors);
  space.rotation = floats(vectors * vectors);
  space.sums = reinterpret_cast<double*>(take(part.n_rows() + vectors + 4, sizeof(double)));
  return space;
}

/// Calls `run(row, n, values)` for each panel of rows, with its values in f32, until one returns an error.
/// `steps.widen(view, out)` converts rows.
template <class Steps, class Run>
Status for_each_basis_panel(const Steps& steps, const BasisPart& part, const BasisSpace& space,
                            const Run& run) {
  const std::int64_t step = part.panel_rows(), columns = part.columns();
  for (std::int64_t row = 0; row < part.n_rows(); row += step) {
    const std::int64_t n = std::min(step, part.n_rows() - row);
    const TensorView rows = {
        static_cast<std::byte*>(at(part.rows, row * columns)), {n, columns}, part.rows.dtype};
    if (space.panel != nullptr) STRATA_TRY(steps.widen(rows, space.panel));
    STRATA_TRY(run(row, n, space.panel != nullptr ? space.panel : rows.template as<float>()));
  }
  return {};
}

/// projected = vectors H^T [n, height]; for the right side only of a panel, whose first row is `row`.
inline Gemm right_projection(const BasisPart& part, const BasisSpace& space, std::int64_t vectors,
                             std::int64_t n, const float* rows) {
  const std::int64_t columns = part.columns();
  return {.trans_b = true,
          .m = vectors,
          .n = n,
          .k = columns,
          .a = space.vectors,
          .lda = columns,
          .b = rows,
          .ldb = columns,
          .c = space.projected,
          .ldc = n};
}
inline Gemm right_product(const BasisPart& part, const BasisSpace& space, std::int64_t vectors,
                          std::int64_t n, const float* rows, bool accumulate) {
  const std::int64_t columns = part.columns();
  return {.m = vectors,
          .n = columns,
          .k = n,
          .a = space.projected,
          .lda = n,
          .b = rows,
          .ldb = columns,
          .c = space.products,
          .ldc = columns,
          .accumulate = accumulate};
}
inline Gemm left_projection(const BasisPart& part, const BasisSpace& space, std::int64_t vectors,
                            std::int64_t row, std::int64_t n, const float* rows) {
  const std::int64_t columns = part.columns();
  return {.m = vectors,
          .n = columns,
          .k = n,
          .a = space.vectors + row,
          .lda = part.length(),
          .b = rows,
          .ldb = columns,
          .c = space.projected,
          .ldc = columns,
          .accumulate = row > 0};
}
inline Gemm left_product(const BasisPart& part, const BasisSpace& space, std::int64_t vectors,
                         std::int64_t row, std::int64_t n, const float* rows) {
  const std::int64_t columns = part.columns();
  return {.trans_b = true,
          .m = vectors,
          .n = n,
          .k = columns,
          .a = space.projected,
          .lda = columns,
          .b = rows,
          .ldb = columns,
          .c = space.products + row,
          .ldc = part.length()};
}

/// products = vectors H^T H, of the first `vectors` of the block.
template <class Steps>
Status multiply_by_gram(const Steps& steps, const BasisPart& part, const BasisSpace& space,
                        std::int64_t vectors) {
  if (part.side == SubspaceSide::right)
    return for_each_basis_panel(
        steps, part, space, [&](std::int64_t row, std::int64_t n, const float* rows) -> Status {
          STRATA_TRY(steps.multiply(right_projection(part, space, vectors, n, rows)));
          return steps.multiply(right_product(part, space, vectors, n, rows, row > 0));
        });
  STRATA_TRY(
      for_each_basis_panel(steps, part, space, [&](std::int64_t row, std::int64_t n, const float* rows) {
        return steps.multiply(left_projection(part, space, vectors, row, n, rows));
      }));
  return for_each_basis_panel(steps, part, space, [&](std::int64_t row, std::int64_t n, const float* rows) {
    return steps.multiply(left_product(part, space, vectors, row, n, rows));
  });
}

/// Element i of fixed random vectors, of a distribution without a mean.
STRATA_HD float random_element(std::uint64_t i) {
  // Two rounds of a multiply-xorshift hash (Stafford's variant 13 of the finalizer of MurmurHash3).
  std::uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x = x ^ (x >> 31);
  return (static_cast<float>(x >> 40) + 0.5f) * 0x1.0p-24f - 0.5f;
}

/// Where element `i` of vector `j` of a part's basis is in a tensor of bases that begins with this part.
STRATA_HD std::int64_t basis_index(bool is_right, std::int64_t rank, std::int64_t length, std::int64_t j,
                                   std::int64_t i) {
  return is_right ? j * length + i : i * rank + j;
}

/// The power of two by which vectors are scaled, so that neither their products with G nor those with G^T
/// leave the range of f32. `squares`: |G|^2, finite and positive.
STRATA_HD double vector_scale(double squares) {
  int exponent = 0;
  (void)frexp(sqrt(squares), &exponent);
  return ldexp(1.0, -exponent);
}

}  // namespace strata::kernels::detail
