#include <strata/kernels/lora.h>

#include <cstring>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "gemm/gemm_tiled.h"
#include "adapters/lora_gemms.h"
#include "adapters/lora_parts_check.h"

namespace strata::kernels {
STRATA_OP(lora_up, LoraUpArgs);
STRATA_OP(lora_up_backward_input, LoraUpBackwardInputArgs);
STRATA_OP(lora_up_backward_weight, LoraUpBackwardWeightArgs);

void lora_up_host(const LoraUpArgs& a, ThreadPool& pool) {
  detail::copy_base(a.base, a.y, pool);
  (void)detail::for_each_part(a.parts, [&](const LoraPart& part, const detail::LoraOffsets& offsets) {
    detail::gemm_tiled(detail::lora_up_gemm(a.u, a.b, a.y, part, offsets), nullptr, pool);
    return Status::ok();
  });
}

void lora_up_backward_input_host(const LoraUpBackwardInputArgs& a, ThreadPool& pool) {
  (void)detail::for_each_part(a.parts, [&](const LoraPart& part, const detail::LoraOffsets& offsets) {
    detail::gemm_tiled(detail::lora_input_gemm(a.dy, a.b, a.du, part, offsets), nullptr, pool);
    return Status::ok();
  });
}

void lora_up_backward_weight_host(const LoraUpBackwardWeightArgs& a, ThreadPool& pool) {
  (void)detail::for_each_part(a.parts, [&](const LoraPart& part, const detail::LoraOffsets& offsets) {
    detail::gemm_tiled(detail::lora_weight_gemm(a.dy, a.u, a.db, part, offsets, a.accumulate), nullptr, pool);
    return Status::ok();
  });
}

Status lora_up_async(Backend& backend, Stream& stream, const LoraUpArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.base), n = dispatch::row_length(a.base);
  const detail::PartSums sums = detail::sums_of(a.parts);
  dispatch::Check check("lora_up", "base", a.base);
  detail::check_parts(check, a.parts, n);
  check.rows("base", a.base, rows, n).rows("u", a.u, rows, sums.ranks).rows("y", a.y, rows, n);
  check.elements("b", a.b, a.base.dtype, sums.elems);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, lora_up_op, a, {a.base, a.u, a.b}, {a.y});
}

Status lora_up_backward_input_async(Backend& backend, Stream& stream, const LoraUpBackwardInputArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy);
  const detail::PartSums sums = detail::sums_of(a.parts);
  dispatch::Check check("lora_up_backward_input", "dy", a.dy);
  detail::check_parts(check, a.parts, n);
  check.rows("dy", a.dy, rows, n).rows("du", a.du, rows, sums.ranks);
  check.elements("b", a.b, a.dy.dtype, sums.elems);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, lora_up_backward_input_op, a, {a.dy, a.b}, {a.du});
}

Status lora_up_backward_weight_async(Backend& backend, Stream& stream, const LoraUpBackwardWeightArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy);
  const detail::PartSums sums = detail::sums_of(a.parts);
  dispatch::Check check("lora_up_backward_weight", "dy", a.dy);
  detail::check_parts(check, a.parts, n);
  check.rows("dy", a.dy, rows, n).rows("u", a.u, rows, sums.ranks);
  check.gradient("db", a.db, {sums.elems}, a.accumulate);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, lora_up_backward_weight_op, a, {a.dy, a.u}, {a.db});
}

}  // namespace strata::kernels
