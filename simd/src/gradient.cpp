#include <strata/simd/gradient.h>

#include <bit>

#include <strata/simd/norm.h>
#include <strata/runtime/str.h>

#include "gradient_table.h"

namespace strata::simd {
namespace {

const detail::GradientTable& gradient_kernels() noexcept { return STRATA_ACTIVE_TABLE(gradient_table); }

template <class T>
double tree_sum_of(std::span<const T> values) noexcept {
  if (values.empty()) return 0.0;
  if (values.size() == 1) return static_cast<double>(values[0]);
  const std::size_t left = std::bit_floor(values.size() - 1);
  return tree_sum_of(values.first(left)) + tree_sum_of(values.subspan(left));
}

}  // namespace

void accumulate(std::span<float> acc, DType dtype, const void* g, bool first) noexcept {
  gradient_kernels().accumulate[detail::storage_index(dtype)](acc.data(), g, first, std::ssize(acc));
}

Status square_sum_partials(std::span<const float> tensor, std::span<double> partials) {
  const auto n = std::ssize(tensor);
  if (std::ssize(partials) != norm_partial_count(n))
    return Status::error(Code::invalid,
                         str("square_sum_partials: ", n, " elements have ", norm_partial_count(n),
                             " partials, but ", partials.size(), " were given"));
  square_sum_partials(DType::f32, tensor.data(), n, partials.data());
  return Status::ok();
}
void square_sum_partials(DType dtype, const void* tensor, std::int64_t n, double* partials) noexcept {
  gradient_kernels().square_sum_partials[detail::storage_index(dtype)](tensor, n, partials);
}

double tree_sum(std::span<const double> values) noexcept { return tree_sum_of(values); }
double tree_sum(std::span<const float> values) noexcept { return tree_sum_of(values); }

}  // namespace strata::simd
