#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

namespace strata::kernels::detail {

/// Everything about a GEMM but its addresses; names as in Gemm.
struct GemmKey {
  bool trans_a = false, trans_b = false, has_bias = false;
  DType dtype = DType::f32, b_dtype = DType::f32, c_dtype = DType::f32;
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  std::uint32_t a_align = 0, b_align = 0, c_align = 0;  ///< bytes, a power of two
  std::uint64_t workspace_bytes = 0;
  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

/// The algorithm of a GEMM, as an opaque cublasLtMatmulAlgo_t, which other versions of cuBLASLt do not
/// understand.
struct GemmAlgorithm {
  GemmKey of;
  std::array<std::uint64_t, 8> algorithm{};
  friend bool operator==(const GemmAlgorithm&, const GemmAlgorithm&) = default;
};

/// One line per GEMM, in the order of their keys.
std::string to_text(std::vector<GemmAlgorithm> choices);
/// Parses the lines about GEMMs; skips empty lines, lines that begin with # and lines about attention.
/// Errors: `invalid`, naming the first line that to_text() cannot have written.
Result<std::vector<GemmAlgorithm>> parse_gemm_algorithms(std::string_view text);

}  // namespace strata::kernels::detail
