#include <bit>
#include <cmath>

#include <strata/cpuopt/adamw.h>
#include <strata/cpuopt/isa.h>
#include <strata/cpuopt/norm.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "opt_table.h"

namespace strata::cpuopt {
namespace {

const detail::OptTable& table() noexcept {
#if defined(__x86_64__)
  switch (active_isa()) {
    case CpuIsa::avx512:
      return avx512::opt_table;
    case CpuIsa::avx2:
      return avx2::opt_table;
    case CpuIsa::sse42:
      return sse42::opt_table;
    case CpuIsa::scalar:
      break;
  }
#endif
  return scalar::opt_table;
}

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

void adamw_update_block(const AdamWScalars<float>& scalars, float grad_factor, float* p, const float* g,
                        float* m, float* v, std::int64_t n) noexcept {
  table().adamw(scalars, grad_factor, p, g, m, v, n);
}

Status adamw_update(const AdamWParams& params, std::span<float> p, std::span<const float> g,
                    std::span<float> m, std::span<float> v) {
  STRATA_TRY(validate(params));
  if (g.size() != p.size() || m.size() != p.size() || v.size() != p.size())
    return Status::error(Code::invalid,
                         str("adamw: ", p.size(), " parameters, but ", g.size(), " gradients, ", m.size(),
                             " first and ", v.size(), " second moments"));
  adamw_update_block(adamw_scalars(params), static_cast<float>(params.grad_factor), p.data(), g.data(),
                     m.data(), v.data(), static_cast<std::int64_t>(p.size()));
  return Status::ok();
}

Status accumulate(std::span<float> acc, std::span<const float> g) {
  if (acc.size() != g.size())
    return Status::error(Code::invalid,
                         str("accumulate: ", acc.size(), " sums, but ", g.size(), " gradients"));
  table().accumulate(acc.data(), g.data(), static_cast<std::int64_t>(g.size()));
  return Status::ok();
}

Status square_sum_leaves(std::span<const float> tensor, std::span<double> leaves) {
  const auto n = static_cast<std::int64_t>(tensor.size());
  if (static_cast<std::int64_t>(leaves.size()) != norm_leaves(n))
    return Status::error(Code::invalid, str("square_sum_leaves: ", n, " elements have ", norm_leaves(n),
                                            " leaves, but ", leaves.size(), " were given"));
  table().square_sum_leaves(tensor.data(), n, leaves.data());
  return Status::ok();
}

double tree_sum(std::span<const double> values) noexcept { return tree_sum_of(values); }
double tree_sum(std::span<const float> values) noexcept { return tree_sum_of(values); }

}  // namespace strata::cpuopt
