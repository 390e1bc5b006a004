#include <strata/kernels/rope.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>

namespace strata::kernels {

STRATA_OP(positions, PositionsArgs);
STRATA_OP(rope_table, RopeTableArgs);
STRATA_OP(rope, RopeArgs);

Status positions_async(Backend& backend, Stream& stream, const PositionsArgs& a) {
  const std::int64_t tokens = a.positions.n_elems();
  dispatch::Check check("positions");
  check.elements("positions", a.positions, DType::i32, tokens)
      .require(a.seq >= 1 && tokens % a.seq == 0, tokens, " tokens are not a multiple of seq ", a.seq);
  if (dispatch::is_present(a.doc_start)) check.elements("doc_start", a.doc_start, DType::i32, tokens);
  STRATA_TRY(check.status());
  return dispatch::enqueue(backend, stream, positions_op, a, {a.doc_start}, {a.positions});
}

Status rope_table_async(Backend& backend, Stream& stream, const RopeTableArgs& a) {
  STRATA_TRY(
      dispatch::Check("rope_table")
          .require(a.table.shape.rank == 2 && a.table.dtype == DType::f32, "table must be f32 [positions, n]")
          .require(dispatch::row_length(a.table) % 2 == 0,
                   "rows of table must have an even number of elements, but have ",
                   dispatch::row_length(a.table))
          .require(a.frequencies.theta > 0 && a.frequencies.factor > 0, "theta is ", a.frequencies.theta,
                   " and factor is ", a.frequencies.factor, "; both must be above 0")
          .require(a.frequencies.scaling != RopeFrequencies::Scaling::yarn ||
                       (a.frequencies.theta > 1 && a.frequencies.original_positions > 0 &&
                        a.frequencies.beta_slow > 0 && a.frequencies.beta_fast > 0),
                   "YaRN with theta ", a.frequencies.theta, ", ", a.frequencies.original_positions,
                   " original positions and betas ", a.frequencies.beta_fast, " and ",
                   a.frequencies.beta_slow, "; theta must be above 1, the others above 0")
          .require(a.frequencies.still >= 0 && 2 * a.frequencies.still <= dispatch::row_length(a.table),
                   a.frequencies.still, " pairs of ", dispatch::row_length(a.table) / 2,
                   " do not turn; it must be 0 to all of them")
          .status());
  return dispatch::enqueue(backend, stream, rope_table_op, a, {}, {a.table});
}

Status rope_async(Backend& backend, Stream& stream, const RopeArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.x);
  const std::int64_t width = dispatch::row_length(a.x);
  const std::int64_t rotary_dim = dispatch::row_length(a.table);
  STRATA_TRY(dispatch::Check("rope", "x", a.x)
                 .rows("x", a.x, rows, width)
                 .rows("y", a.y, rows, width)
                 .elements("positions", a.positions, DType::i32, rows)
                 .require(a.head_dim >= 1 && a.heads >= 0 && a.heads * a.head_dim <= width, a.heads,
                          " heads of ", a.head_dim, " do not fit into rows of ", width)
                 .require(rotary_dim % 2 == 0 && rotary_dim <= a.head_dim, rotary_dim,
                          " elements of a head of ", a.head_dim,
                          " are rotated; the number must be even and at most the head's")
                 .rows("table", a.table, DType::f32, dispatch::row_count(a.table), rotary_dim)
                 .status());
  return dispatch::enqueue(backend, stream, rope_op, a, {a.x, a.positions, a.table}, {a.y});
}

}  // namespace strata::kernels
