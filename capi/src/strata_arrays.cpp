#include <cstring>
#include <vector>

#include <strata/cpuopt/master.h>
#include <strata/simd/norm.h>
#include <strata/cpuopt/update.h>
#include <strata/runtime/convert.h>

#include "c_call.h"
#include "c_struct.h"
#include "c_values.h"

using namespace strata;

namespace {

struct Arrays {
  cpuopt::Optimizer optimizer;
  std::int64_t n;
  cpuopt::UpdateBlock block;
  std::size_t bytes() const { return static_cast<std::size_t>(n) * cpuopt::param_bytes(block.layout); }
};

Status check_present(const void* pointer, bool needed, const char* name, const char* why) {
  if ((pointer != nullptr) == needed) return {};
  return Status::error(Code::invalid, str(name, needed ? " is null, but " : " is not null, but ", why));
}

Result<Arrays> arrays_of(const strata_arrays* given, strata_optimizer optimizer, bool momentum) {
  STRATA_TRY_ASSIGN(const strata_arrays arrays, capi::read_struct(given, "strata_arrays"));
  const auto known = capi::optimizer_of(optimizer);
  if (!known) return Status::error(Code::invalid, str("the optimizer is ", optimizer, "; it must be 0 to 5"));
  const auto dtype = capi::dtype_of(arrays.dtype), gradient = capi::dtype_of(arrays.gradient_dtype);
  if (!dtype || !gradient)
    return Status::error(Code::invalid, str("dtype is ", arrays.dtype, " and gradient_dtype ",
                                            arrays.gradient_dtype, "; they must be 0 to 2"));
  if (arrays.n < 0 || arrays.n > (std::int64_t{1} << 32))
    return Status::error(Code::invalid, str("n is ", arrays.n, "; it must be 0 to 2^32"));
  Arrays own{*known, arrays.n, {}};
  own.block.layout = cpuopt::master_layout(*dtype);
  own.block.grad = *gradient;
  own.block.param = arrays.param;
  own.block.master = arrays.master;
  own.block.m.values = reinterpret_cast<std::byte*>(arrays.m);
  own.block.v.values = reinterpret_cast<std::byte*>(arrays.v);
  own.block.g = arrays.gradient;
  const cpuopt::MomentSet moments = cpuopt::moments_of(*known, momentum);
  STRATA_TRY(check_present(arrays.param, true, "param", "it is updated"));
  STRATA_TRY(
      check_present(arrays.master, cpuopt::master_bytes(own.block.layout) > 0, "master", "dtype decides"));
  STRATA_TRY(check_present(arrays.m, moments.first, "m", "the optimizer decides"));
  STRATA_TRY(check_present(arrays.v, moments.second, "v", "the optimizer decides"));
  return own;
}

void update(const Arrays& arrays, const cpuopt::UpdateStep& step) {
  if (arrays.optimizer != cpuopt::Optimizer::lamb) {
    cpuopt::update_block(step, arrays.block, arrays.n, {});
    return;
  }
  std::vector<double> masters(static_cast<std::size_t>(simd::norm_partial_count(arrays.n)));
  std::vector<double> directions(masters.size());
  cpuopt::lamb_moments_block(step, arrays.block, arrays.n, {}, masters.data(), directions.data());
  cpuopt::lamb_apply_block(step,
                           cpuopt::lamb_trust_ratio(simd::tree_sum(masters), simd::tree_sum(directions)),
                           arrays.block, arrays.n);
}

}  // namespace

strata_status strata_arrays_init(const strata_arrays* given, strata_optimizer optimizer) {
  return capi::call([&]() -> Status {
    const bool momentum = given != nullptr && given->m != nullptr;  // SGD has momentum if `m` is given
    STRATA_TRY_ASSIGN(const Arrays arrays, arrays_of(given, optimizer, momentum));
    const auto n = static_cast<std::size_t>(arrays.n);
    for (const cpuopt::Moment& moment : {arrays.block.m, arrays.block.v})
      if (moment.values != nullptr) std::memset(moment.values, 0, n * sizeof(float));
    if (arrays.block.master == nullptr) return {};
    const std::size_t rest = cpuopt::master_bytes(arrays.block.layout);
    if (arrays.block.layout == cpuopt::MasterLayout::bf16_split) {
      std::memset(arrays.block.master, 0, n * rest);
      return {};
    }
    return widen_to_f32(DType::f16, {static_cast<const std::byte*>(arrays.block.param), arrays.bytes()},
                        {static_cast<float*>(arrays.block.master), n});
  });
}

strata_status strata_arrays_update(const strata_arrays* given, strata_optimizer optimizer,
                                   const strata_settings* settings, int64_t step) {
  return capi::call([&]() -> Status {
    STRATA_TRY_ASSIGN(
        cpuopt::OptimizerParams params,
        capi::settings_of(settings, capi::optimizer_of(optimizer).value_or(cpuopt::Optimizer::adamw)));
    STRATA_TRY_ASSIGN(const Arrays arrays, arrays_of(given, optimizer, params.momentum > 0));
    STRATA_TRY(check_present(arrays.block.g, true, "gradient", "it is read"));
    params.step = step;
    STRATA_TRY(cpuopt::validate(params));
    update(arrays, cpuopt::make_update_step(params));
    return {};
  });
}
