#include "plan/collective_of.h"

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/assert.h>

namespace strata::detail {
namespace {

BufferView rows_of(const TensorView& view, std::int64_t first, std::int64_t n) {
  const std::size_t row = view.bytes() / static_cast<std::size_t>(view.shape.dim(0));
  return writable(view).part(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(n) * row);
}

Collective sum(CollectiveKind kind, ConstBufferView send, BufferView receive, DType dtype) {
  return {.kind = kind, .send = send, .receive = receive, .dtype = dtype, .reduction = Reduction::sum};
}

}  // namespace

bool is_among_neighbours(Op op) noexcept { return op == Op::all_reduce_rows; }
bool reduces_in_place(Op op) noexcept {
  return op == Op::all_reduce || op == Op::all_reduce_rows || op == Op::accumulate_over_ranks;
}

Collective collective_of(Op op, const CollectiveAttrs& attrs, const TensorView& in, const TensorView& out) {
  switch (op) {
    case Op::all_reduce:
    case Op::accumulate_over_ranks:
      return sum(CollectiveKind::all_reduce, {}, writable(out), out.dtype);
    case Op::all_reduce_rows:
      return sum(CollectiveKind::all_reduce, {}, rows_of(out, attrs.first_row, attrs.rows), out.dtype);
    case Op::reduce_scatter:
      return sum(CollectiveKind::reduce_scatter, bytes_of(in), writable(out), out.dtype);
    case Op::all_gather:
      return {.kind = CollectiveKind::all_gather, .send = bytes_of(in), .receive = writable(out)};
    case Op::all_to_all:
      return {.kind = CollectiveKind::all_to_all, .send = bytes_of(in), .receive = writable(out)};
    case Op::shift_begin:
      return {.kind = CollectiveKind::shift,
              .send = bytes_of(in),
              .receive = writable(out),
              .peer = (attrs.step % attrs.ranks + attrs.ranks) % attrs.ranks};
    default:
      break;
  }
  STRATA_ASSERT(false, op_name(op), " is no collective");
  return {};
}

std::uint64_t sent_bytes(Op op, const CollectiveAttrs& attrs, const TensorView& in, const TensorView& out) {
  const bool neighbours = is_among_neighbours(op);
  if (op == Op::shift_end) return 0;
  return wire_bytes(collective_of(op, attrs, in, out), neighbours ? attrs.rank % attrs.group : attrs.rank,
                    neighbours ? attrs.group : attrs.ranks)
      .sent;
}

}  // namespace strata::detail
