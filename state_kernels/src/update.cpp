#include <strata/state_kernels/update.h>

#include <strata/simd/norm.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>

#include "work_items.h"

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

/// Memory outside the block that an op reads or writes.
struct NamedAccess {
  const char* name;
  Access access;
};

bool is_whole(const cpuopt::Moment& moment, StateFormat format) {
  return moment.values != nullptr && (format != StateFormat::int8 || moment.scales != nullptr);
}

/// The first error of the arguments; `invalid`, naming it.
template <class Args>
Status check_block(const char* op, const Args& a, const Touches& touches,
                   std::initializer_list<NamedAccess> others) {
  const cpuopt::UpdateBlock& b = a.block;
  const cpuopt::MomentSet moments = a.step.moments;
  dispatch::Check check(op);
  check.require(a.n >= 0, "n is ", a.n, "; it must be 0 or more")
      .require(b.param != nullptr, "block.param is null")
      .require(b.master != nullptr || cpuopt::master_bytes(b.layout) == 0, "block.master is null")
      .require(b.g != nullptr || touches.gradient == Touch::none, "block.g is null")
      .require(is_whole(b.m, b.states) || !moments.first, "block.m is null")
      .require(is_whole(b.v, b.states) || !moments.second, "block.v is null");
  for (const NamedAccess& other : others) check.require(other.access.data != nullptr, other.name, " is null");
  return check.status();
}

template <class Args>
Status enqueue_block(Backend& backend, Stream& stream, const dispatch::OpImpl<Args>& op, const Args& a,
                     const Touches& touches, std::initializer_list<NamedAccess> others) {
  STRATA_TRY(check_block(op.name, a, touches, others));
  if (a.n == 0) return Status::ok();
  if (backend.info().kind == DeviceKind::cuda) return op.cuda(backend, stream, a);
  const cpuopt::UpdateBlock& b = a.block;
  HostCall call(op.name, op.host, a);
  const auto elems = static_cast<std::size_t>(a.n);
  declare(call, touches.masters, b.param, elems * cpuopt::param_bytes(b.layout));
  declare(call, touches.masters, b.master, elems * cpuopt::master_bytes(b.layout));
  for (const cpuopt::Moment& moment : {b.m, b.v}) {
    declare(call, touches.moments, moment.values, elems * moment_value_bytes(b.states));
    declare(call, touches.moments, moment.scales, (elems + kMomentBlock - 1) / kMomentBlock * sizeof(float));
  }
  declare(call, touches.gradient, b.g, elems * size_of(b.grad));
  for (const auto& [name, access] : others)
    declare(call, access.write ? Touch::writes : Touch::reads, access.data, access.bytes);
  return backend.host_call_async(call, stream);
}

Access partials_of(const double* partials, std::int64_t n) {
  return {reinterpret_cast<const std::byte*>(partials),
          sizeof(double) * static_cast<std::size_t>(simd::norm_partial_count(n)), true};
}

}  // namespace

STRATA_OP(update, UpdateArgs);
STRATA_OP(lamb_partials, LambPartialsArgs);
STRATA_OP(lamb_apply, LambApplyArgs);
STRATA_OP(ema, EmaArgs);

void update_host(const UpdateArgs& a, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, a.n, detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::update_block(a.step, a.block.at(i), n, a.noise);
  });
}

void lamb_partials_host(const LambPartialsArgs& a, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, a.n, detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    const std::int64_t partial = i / simd::kNormPartialElems;
    cpuopt::lamb_partials_block(a.step, a.block.at(i), n, a.master_partials + partial,
                                a.direction_partials + partial);
  });
}

void lamb_apply_host(const LambApplyArgs& a, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, a.n, detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::lamb_apply_block(a.step, *a.trust, a.block.at(i), n);
  });
}

void ema_host(const EmaArgs& a, ThreadPool& pool) {
  dispatch::parallel_for_ranges(pool, a.n, detail::kItemElems, [&](std::int64_t i, std::int64_t n) {
    cpuopt::update_ema_block(a.weight, a.block.at(i), n);
  });
}

Status update_async(Backend& backend, Stream& stream, const UpdateArgs& a) {
  return enqueue_block(backend, stream, update_op, a, {Touch::writes, Touch::writes, Touch::reads}, {});
}

Status lamb_partials_async(Backend& backend, Stream& stream, const LambPartialsArgs& a) {
  return enqueue_block(backend, stream, lamb_partials_op, a, {Touch::reads, Touch::reads, Touch::none},
                       {{"master_partials", partials_of(a.master_partials, a.n)},
                        {"direction_partials", partials_of(a.direction_partials, a.n)}});
}

Status lamb_apply_async(Backend& backend, Stream& stream, const LambApplyArgs& a) {
  return enqueue_block(backend, stream, lamb_apply_op, a, {Touch::writes, Touch::reads, Touch::none},
                       {{"trust", {reinterpret_cast<const std::byte*>(a.trust), sizeof(float), false}}});
}

Status ema_async(Backend& backend, Stream& stream, const EmaArgs& a) {
  const cpuopt::UpdateBlock& b = a.block;
  dispatch::Check check("ema");
  check.require(a.n >= 0, "n is ", a.n, "; it must be 0 or more")
      .require(b.param != nullptr, "block.param is null")
      .require(b.master != nullptr || cpuopt::master_bytes(b.layout) == 0, "block.master is null")
      .require(b.ema != nullptr, "block.ema is null")
      .require(a.weight > 0 && a.weight <= 1, "weight is ", a.weight, "; it must be above 0 and at most 1");
  STRATA_TRY(check.status());
  if (a.n == 0) return Status::ok();
  if (backend.info().kind == DeviceKind::cuda) return ema_op.cuda(backend, stream, a);
  HostCall call(ema_op.name, ema_op.host, a);
  const auto elems = static_cast<std::size_t>(a.n);
  declare(call, Touch::reads, b.param, elems * cpuopt::param_bytes(b.layout));
  declare(call, Touch::reads, b.master, elems * cpuopt::master_bytes(b.layout));
  declare(call, Touch::writes, b.ema, elems * sizeof(float));
  return backend.host_call_async(call, stream);
}

}  // namespace strata::state_kernels
