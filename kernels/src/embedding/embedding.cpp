#include <strata/kernels/embedding.h>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/embedding/launches.h"

namespace strata::kernels {
namespace {

ops::Check check(const char* op, const TensorView& ids, const TensorView& x, const char* x_name,
                 const TensorView& table) {
  ops::Check check(op, x_name, x);
  check.elements("ids", ids, DType::i32, ids.n_elems())
      .rows(x_name, x, ids.n_elems(), ops::row_length(table));
  return check;
}

}  // namespace

Status embedding_forward_async(Backend& backend, Stream& stream, const EmbeddingForwardArgs& a) {
  STRATA_TRY(check("embedding_forward", a.ids, a.x, "x", a.table)
                 .shape("table", a.table, a.x.dtype, {a.table.shape.dims[0], ops::row_length(a.table)})
                 .status());
  constexpr ops::OpImpl<EmbeddingForwardArgs> op = {"embedding_forward", &embedding_forward_host,
                                                    &cuda::embedding_forward};
  return ops::enqueue(backend, stream, op, a, {a.ids, a.table}, {a.x});
}

std::size_t embedding_backward_workspace_bytes(std::int64_t tokens, std::int64_t vocab) noexcept {
  return static_cast<std::size_t>(vocab + 1 + tokens) * sizeof(std::int32_t);
}

Status embedding_backward_async(Backend& backend, Stream& stream, const EmbeddingBackwardArgs& a) {
  STRATA_TRY(
      check("embedding_backward", a.ids, a.dx, "dx", a.dtable)
          .gradient("dtable", a.dtable, {a.dtable.shape.dims[0], ops::row_length(a.dtable)}, a.accumulate)
          .workspace(a.workspace, embedding_backward_workspace_bytes(a.ids.n_elems(), a.dtable.shape.dims[0]))
          .status());
  constexpr ops::OpImpl<EmbeddingBackwardArgs> op = {"embedding_backward", &embedding_backward_host,
                                                     &cuda::embedding_backward};
  return ops::enqueue(backend, stream, op, a, {a.ids, a.dx}, {a.dtable}, a.workspace);
}

}  // namespace strata::kernels
