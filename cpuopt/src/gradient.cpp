#include <strata/cpuopt/gradient.h>

#include <bit>

#include <strata/cpuopt/norm.h>
#include <strata/runtime/str.h>

#include "gradient_table.h"

namespace strata::cpuopt {
namespace {

const detail::GradientTable& gradient_bodies() noexcept { return STRATA_ACTIVE_TABLE(gradient_table); }

template <class T>
double tree_sum_of(std::span<const T> values) noexcept {
  if (values.empty()) return 0.0;
  if (values.size() == 1) return static_cast<double>(values[0]);
  const std::size_t left = std::bit_floor(values.size() - 1);
  return tree_sum_of(values.first(left)) + tree_sum_of(values.subspan(left));
}

}  // namespace

void accumulate(std::span<float> acc, DType dtype, const void* g, bool first) noexcept {
  gradient_bodies().accumulate[detail::storage_index(dtype)](acc.data(), g, first, std::ssize(acc));
}

Status square_sum_leaves(std::span<const float> tensor, std::span<double> leaves) {
  const auto n = std::ssize(tensor);
  if (std::ssize(leaves) != norm_leaves(n))
    return Status::error(Code::invalid, str("square_sum_leaves: ", n, " elements have ", norm_leaves(n),
                                            " leaves, but ", leaves.size(), " were given"));
  square_sum_leaves(DType::f32, tensor.data(), n, leaves.data());
  return Status::ok();
}
void square_sum_leaves(DType dtype, const void* tensor, std::int64_t n, double* leaves) noexcept {
  gradient_bodies().square_sum_leaves[detail::storage_index(dtype)](tensor, n, leaves);
}

double tree_sum(std::span<const double> values) noexcept { return tree_sum_of(values); }
double tree_sum(std::span<const float> values) noexcept { return tree_sum_of(values); }

}  // namespace strata::cpuopt
