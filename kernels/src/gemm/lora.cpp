#include <strata/kernels/lora.h>

#include <algorithm>
#include <cstring>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "gemm/gemm_tiled.h"
#include "gemm/lora_gemms.h"

namespace strata::kernels {
STRATA_OP(lora_up, LoraUpArgs);
STRATA_OP(lora_up_backward_input, LoraUpBackwardInputArgs);
STRATA_OP(lora_up_backward_weight, LoraUpBackwardWeightArgs);

namespace {

constexpr std::int64_t kCopyBytes = std::int64_t{256} << 10;  // by a thread at a time

struct Sizes {
  std::int64_t rank = 0, elems = 0;
};
Sizes sizes_of(const LoraParts& parts) {
  Sizes sizes;
  for (const LoraPart& part : parts.all()) {
    sizes.rank += part.rank;
    sizes.elems += part.rows * part.rank;
  }
  return sizes;
}

// Parts are in order and do not overlap, so that each element of y has one adapter.
void check_parts(dispatch::Check& check, const LoraParts& parts, std::int64_t columns) {
  check.require(parts.n > 0 && parts.n <= parts.part.size(), "there are ", parts.n,
                " parts; there must be 1 to ", parts.part.size());
  std::int64_t end = 0;
  for (const LoraPart& part : parts.all()) {
    check.require(
        part.rank > 0 && part.rows > 0 && part.first_row >= end && part.first_row + part.rows <= columns,
        "a part adapts rows ", part.first_row, " to ", part.first_row + part.rows, " of ", columns,
        " with rank ", part.rank, ", after a part that ends at row ", end);
    end = part.first_row + part.rows;
  }
}

}  // namespace

void lora_up_host(const LoraUpArgs& a, ThreadPool& pool) {
  if (a.y.data != a.base.data) {
    dispatch::parallel_for_ranges(
        pool, static_cast<std::int64_t>(a.y.bytes()), kCopyBytes, [&](std::int64_t begin, std::int64_t n) {
          std::memcpy(a.y.data + begin, a.base.data + begin, static_cast<std::size_t>(n));
        });
  }
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
  const Sizes sizes = sizes_of(a.parts);
  dispatch::Check check("lora_up", "base", a.base);
  check_parts(check, a.parts, n);
  check.rows("base", a.base, rows, n).rows("u", a.u, rows, sizes.rank).rows("y", a.y, rows, n);
  check.elements("b", a.b, a.base.dtype, sizes.elems);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, lora_up_op, a, {a.base, a.u, a.b}, {a.y});
}

Status lora_up_backward_input_async(Backend& backend, Stream& stream, const LoraUpBackwardInputArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy);
  const Sizes sizes = sizes_of(a.parts);
  dispatch::Check check("lora_up_backward_input", "dy", a.dy);
  check_parts(check, a.parts, n);
  check.rows("dy", a.dy, rows, n).rows("du", a.du, rows, sizes.rank);
  check.elements("b", a.b, a.dy.dtype, sizes.elems);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, lora_up_backward_input_op, a, {a.dy, a.b}, {a.du});
}

Status lora_up_backward_weight_async(Backend& backend, Stream& stream, const LoraUpBackwardWeightArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dy), n = dispatch::row_length(a.dy);
  const Sizes sizes = sizes_of(a.parts);
  dispatch::Check check("lora_up_backward_weight", "dy", a.dy);
  check_parts(check, a.parts, n);
  check.rows("dy", a.dy, rows, n).rows("u", a.u, rows, sizes.rank);
  check.gradient("db", a.db, {sizes.elems}, a.accumulate);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, lora_up_backward_weight_op, a, {a.dy, a.u}, {a.db});
}

}  // namespace strata::kernels
