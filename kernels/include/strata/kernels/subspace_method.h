#pragma once

#include <cstdint>
#include <string_view>

namespace strata::kernels {

/// The space of a matrix G [rows, columns] of which a basis is: that of its rows, whose vectors are as long
/// as a row, or that of its columns.
enum class SubspaceSide : std::uint8_t {
  right,  ///< Q [rank, columns], and what it leaves of G is G Q^T [rows, rank]
  left,   ///< P [rows, rank], and what it leaves of G is P^T G [rank, columns]
};

/// How leading singular vectors are computed.
enum class SvdMethod : std::uint8_t {
  subspace,  ///< randomized subspace iteration (Halko et al. 2009, arXiv 0909.4061), which is approximate
  exact,     ///< the eigenvectors of G^T G or G G^T in f64; the time grows with the cube of the shorter side
};
/// The name in the configuration: subspace or exact.
constexpr std::string_view to_string(SvdMethod method) noexcept {
  return method == SvdMethod::exact ? "exact" : "subspace";
}

}  // namespace strata::kernels
