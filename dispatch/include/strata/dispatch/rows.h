#pragma once

#include <cstdint>

#include <strata/runtime/tensor_view.h>

namespace strata::dispatch {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

inline std::int64_t row_length(const TensorView& view) noexcept {
  return view.shape.rank > 0 ? view.shape.dim(-1) : 0;
}
inline std::int64_t row_count(const TensorView& view) noexcept {
  std::int64_t n = 1;
  for (int i = 0; i + 1 < view.shape.rank; ++i) n *= view.shape.dim(i);
  return n;
}
inline bool is_present(const TensorView& view) noexcept { return view.shape.rank > 0; }

}  // namespace strata::dispatch
