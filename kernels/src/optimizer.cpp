#include <strata/kernels/optimizer.h>

#include <strata/cpuopt/norm.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {
namespace {

/// What an op over a block of a tensor touches.
enum class Touch : std::uint8_t { none, reads, writes };

struct Touches {
  Touch masters, moments, gradient;
};

void declare(HostCall& call, Touch touch, const void* data, std::size_t bytes) {
  if (data == nullptr || bytes == 0 || touch == Touch::none) return;
  if (touch == Touch::writes)
    call.writes(data, bytes);
  else
    call.reads(data, bytes);
}

template <class Args>
Status queue_block(Backend& backend, Stream& stream, const detail::Op<Args>& op, const Args& a,
                   const Touches& touches, std::initializer_list<Access> others) {
  const cpuopt::UpdateBlock& b = a.block;
  STRATA_TRY(detail::Check(op.name)
                 .that(a.n >= 0, "n is ", a.n)
                 .that(b.param != nullptr, "block.param is null")
                 .that(b.master != nullptr || cpuopt::master_bytes(b.layout) == 0, "block.master is null")
                 .that(b.g != nullptr || touches.gradient == Touch::none, "block.g is null")
                 .status());
  if (a.n == 0) return Status::ok();
  if (backend.info().kind == DeviceKind::cuda) return op.cuda(backend, stream, a);
  HostCall call(op.name, op.host, a);
  const auto elems = static_cast<std::size_t>(a.n);
  declare(call, touches.masters, b.param, elems * cpuopt::param_bytes(b.layout));
  declare(call, touches.masters, b.master, elems * cpuopt::master_bytes(b.layout));
  for (const cpuopt::Moment& moment : {b.m, b.v}) {
    declare(call, touches.moments, moment.values, elems * moment_value_bytes(b.states));
    declare(call, touches.moments, moment.scales, (elems + kMomentBlock - 1) / kMomentBlock * sizeof(float));
  }
  declare(call, touches.gradient, b.g, elems * size_of(b.grad));
  for (const Access& access : others)
    declare(call, access.write ? Touch::writes : Touch::reads, access.data, access.bytes);
  return backend.host_call_async(call, stream);
}

Access leaves_of(const double* leaves, std::int64_t n) {
  return {reinterpret_cast<const std::byte*>(leaves),
          sizeof(double) * static_cast<std::size_t>(cpuopt::norm_leaves(n)), true};
}

}  // namespace

Status update_async(Backend& backend, Stream& stream, const UpdateArgs& a) {
  constexpr detail::Op<UpdateArgs> op = {"update", &update_host, &cuda::update};
  return queue_block(backend, stream, op, a, {Touch::writes, Touch::writes, Touch::reads}, {});
}

Status lamb_leaves_async(Backend& backend, Stream& stream, const LambLeavesArgs& a) {
  constexpr detail::Op<LambLeavesArgs> op = {"lamb leaves", &lamb_leaves_host, &cuda::lamb_leaves};
  return queue_block(backend, stream, op, a, {Touch::reads, Touch::reads, Touch::none},
                     {leaves_of(a.master_leaves, a.n), leaves_of(a.direction_leaves, a.n)});
}

Status lamb_apply_async(Backend& backend, Stream& stream, const LambApplyArgs& a) {
  constexpr detail::Op<LambApplyArgs> op = {"lamb apply", &lamb_apply_host, &cuda::lamb_apply};
  return queue_block(backend, stream, op, a, {Touch::writes, Touch::reads, Touch::none},
                     {{reinterpret_cast<const std::byte*>(a.trust), sizeof(float), false}});
}

Status accumulate_async(Backend& backend, Stream& stream, const AccumulateArgs& a) {
  const std::int64_t n = a.acc.n_elems();
  STRATA_TRY(detail::Check("accumulate", "g", a.g)
                 .elements("acc", a.acc, DType::f32, n)
                 .elements("g", a.g, a.g.dtype, n)
                 .status());
  constexpr detail::Op<AccumulateArgs> op = {"accumulate", &accumulate_host, &cuda::accumulate};
  return detail::queue(backend, stream, op, a, {a.g}, {a.acc});
}

Status square_sum_leaves_async(Backend& backend, Stream& stream, const SquareSumLeavesArgs& a) {
  STRATA_TRY(detail::Check("square_sum_leaves", "x", a.x)
                 .elements("leaves", a.leaves, DType::f64, cpuopt::norm_leaves(a.x.n_elems()))
                 .status());
  constexpr detail::Op<SquareSumLeavesArgs> op = {"square_sum_leaves", &square_sum_leaves_host,
                                                  &cuda::square_sum_leaves};
  return detail::queue(backend, stream, op, a, {a.x}, {a.leaves});
}

}  // namespace strata::kernels
