#include <bit>
#include <cmath>

#include <strata/cpuopt/adamw.h>
#include <strata/cpuopt/norm.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "opt_table.h"

namespace strata::cpuopt {
namespace {

const detail::OptTable& table() noexcept { return STRATA_ACTIVE_TABLE(opt_table); }

/// base^n by squaring: about log2(n) roundings, in an order that depends on n alone.
double power(double base, std::int64_t n) noexcept {
  double out = 1.0;
  for (; n > 0; n >>= 1, base *= base)
    if ((n & 1) != 0) out *= base;
  return out;
}

template <class T>
double tree_sum_of(std::span<const T> values) noexcept {
  if (values.empty()) return 0.0;
  if (values.size() == 1) return static_cast<double>(values[0]);
  const std::size_t left = std::bit_floor(values.size() - 1);
  return tree_sum_of(values.first(left)) + tree_sum_of(values.subspan(left));
}

}  // namespace

Status validate(const AdamWParams& params) {
  const auto bad = [](const char* name, auto value, const char* takes) {
    return Status::error(Code::invalid, str("adamw: ", name, " is ", value, "; it takes ", takes));
  };
  if (params.step < 1) return bad("step", params.step, "1 and up");
  if (!(params.beta1 >= 0.0 && params.beta1 < 1.0)) return bad("beta1", params.beta1, "[0, 1)");
  if (!(params.beta2 >= 0.0 && params.beta2 < 1.0)) return bad("beta2", params.beta2, "[0, 1)");
  if (!(params.eps > 0.0 && std::isfinite(params.eps))) return bad("eps", params.eps, "a number above 0");
  if (!std::isfinite(params.lr)) return bad("lr", params.lr, "a finite number");
  if (!std::isfinite(params.weight_decay)) return bad("weight_decay", params.weight_decay, "a finite number");
  if (!std::isfinite(params.grad_factor)) return bad("grad_factor", params.grad_factor, "a finite number");
  return Status::ok();
}

AdamWScalars<float> adamw_scalars(const AdamWParams& params) noexcept {
  const double bias1 = 1.0 - power(params.beta1, params.step);
  const double bias2 = 1.0 - power(params.beta2, params.step);
  return {.beta1 = static_cast<float>(params.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - params.beta1),
          .beta2 = static_cast<float>(params.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - params.beta2),
          .eps = static_cast<float>(params.eps),
          .decay = static_cast<float>(1.0 - params.lr * params.weight_decay),
          .step_size = static_cast<float>(params.lr / bias1),
          .inv_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(bias2))};
}

void adamw_update_block(const AdamWScalars<float>& scalars, float grad_factor, const AdamWBlock& block,
                        std::int64_t n) noexcept {
  table().adamw[detail::storage_index(block.compute)][block.grad == DType::f32 ? 0 : 1](scalars, grad_factor,
                                                                                        block, n);
}

Status adamw_update(const AdamWParams& params, std::span<float> p, std::span<const float> g,
                    std::span<float> m, std::span<float> v) {
  STRATA_TRY(validate(params));
  if (g.size() != p.size() || m.size() != p.size() || v.size() != p.size())
    return Status::error(Code::invalid,
                         str("adamw: ", p.size(), " parameters, but ", g.size(), " gradients, ", m.size(),
                             " first and ", v.size(), " second moments"));
  adamw_update_block(adamw_scalars(params), static_cast<float>(params.grad_factor),
                     {.param = p.data(), .m = m.data(), .v = v.data(), .g = g.data()},
                     static_cast<std::int64_t>(p.size()));
  return Status::ok();
}

void split_masters(std::span<const float> from, DType compute, void* param, void* master) noexcept {
  table().split[detail::storage_index(compute)](from.data(), param, master,
                                                static_cast<std::int64_t>(from.size()));
}
void join_masters(DType compute, const void* param, const void* master, std::span<float> into) noexcept {
  table().join[detail::storage_index(compute)](param, master, into.data(),
                                               static_cast<std::int64_t>(into.size()));
}

void accumulate(std::span<float> acc, DType dtype, const void* g, bool first) noexcept {
  table().accumulate[detail::storage_index(dtype)](acc.data(), g, first,
                                                   static_cast<std::int64_t>(acc.size()));
}

Status square_sum_leaves(std::span<const float> tensor, std::span<double> leaves) {
  const auto n = static_cast<std::int64_t>(tensor.size());
  if (static_cast<std::int64_t>(leaves.size()) != norm_leaves(n))
    return Status::error(Code::invalid, str("square_sum_leaves: ", n, " elements have ", norm_leaves(n),
                                            " leaves, but ", leaves.size(), " were given"));
  square_sum_leaves(DType::f32, tensor.data(), n, leaves.data());
  return Status::ok();
}
void square_sum_leaves(DType dtype, const void* tensor, std::int64_t n, double* leaves) noexcept {
  table().square_sum_leaves[detail::storage_index(dtype)](tensor, n, leaves);
}

double tree_sum(std::span<const double> values) noexcept { return tree_sum_of(values); }
double tree_sum(std::span<const float> values) noexcept { return tree_sum_of(values); }

}  // namespace strata::cpuopt
