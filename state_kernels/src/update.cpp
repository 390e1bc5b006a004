#include <strata/state_kernels/update.h>

#include <strata/cpuopt/norm.h>
#include <strata/ops/op.h>

#include "cuda/launches.h"

namespace strata::state_kernels {
namespace {

/// How an op over a block of a tensor accesses a part of the block.
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
Status enqueue_block(Backend& backend, Stream& stream, const ops::OpImpl<Args>& op, const Args& a,
                     const Touches& touches, std::initializer_list<Access> others) {
  const cpuopt::UpdateBlock& b = a.block;
  STRATA_TRY(ops::Check(op.name)
                 .require(a.n >= 0, "n is ", a.n, "; it must be 0 or more")
                 .require(b.param != nullptr, "block.param is null")
                 .require(b.master != nullptr || cpuopt::master_bytes(b.layout) == 0, "block.master is null")
                 .require(b.g != nullptr || touches.gradient == Touch::none, "block.g is null")
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

Access partials_of(const double* partials, std::int64_t n) {
  return {reinterpret_cast<const std::byte*>(partials),
          sizeof(double) * static_cast<std::size_t>(cpuopt::norm_partial_count(n)), true};
}

}  // namespace

Status update_async(Backend& backend, Stream& stream, const UpdateArgs& a) {
  constexpr ops::OpImpl<UpdateArgs> op = {"update", &update_host, &cuda::update};
  return enqueue_block(backend, stream, op, a, {Touch::writes, Touch::writes, Touch::reads}, {});
}

Status lamb_partials_async(Backend& backend, Stream& stream, const LambPartialsArgs& a) {
  constexpr ops::OpImpl<LambPartialsArgs> op = {"lamb_partials", &lamb_partials_host, &cuda::lamb_partials};
  return enqueue_block(backend, stream, op, a, {Touch::reads, Touch::reads, Touch::none},
                       {partials_of(a.master_partials, a.n), partials_of(a.direction_partials, a.n)});
}

Status lamb_apply_async(Backend& backend, Stream& stream, const LambApplyArgs& a) {
  constexpr ops::OpImpl<LambApplyArgs> op = {"lamb_apply", &lamb_apply_host, &cuda::lamb_apply};
  return enqueue_block(backend, stream, op, a, {Touch::writes, Touch::reads, Touch::none},
                       {{reinterpret_cast<const std::byte*>(a.trust), sizeof(float), false}});
}

}  // namespace strata::state_kernels
