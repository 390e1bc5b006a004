#include <strata/kernels/embedding.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {
namespace {

detail::Check check(const char* op, const TensorView& ids, const TensorView& x, const char* x_name,
                    const TensorView& table, const char* table_name) {
  const std::int64_t h = detail::row_length(table);
  detail::Check check(op);
  check.shape(table_name, table, DType::f32, {table.shape.dims[0], h})
      .elements("ids", ids, DType::i32, ids.n_elems())
      .rows(x_name, x, ids.n_elems(), h);
  return check;
}

}  // namespace

Status embedding_forward_async(Backend& backend, Stream& stream, const EmbeddingForwardArgs& a) {
  STRATA_TRY(check("embedding_forward", a.ids, a.x, "x", a.table, "table").status());
  constexpr detail::Op<EmbeddingForwardArgs> op = {"embedding_forward", &embedding_forward_host,
                                                   &cuda::embedding_forward};
  return detail::queue(backend, stream, op, a, {a.ids, a.table}, {a.x});
}

std::size_t embedding_backward_workspace_bytes(std::int64_t tokens, std::int64_t vocab) noexcept {
  return static_cast<std::size_t>(vocab + 1 + tokens) * sizeof(std::int32_t);
}

Status embedding_backward_async(Backend& backend, Stream& stream, const EmbeddingBackwardArgs& a) {
  STRATA_TRY(
      check("embedding_backward", a.ids, a.dx, "dx", a.dtable, "dtable")
          .workspace(a.workspace, embedding_backward_workspace_bytes(a.ids.n_elems(), a.dtable.shape.dims[0]))
          .status());
  constexpr detail::Op<EmbeddingBackwardArgs> op = {"embedding_backward", &embedding_backward_host,
                                                    &cuda::embedding_backward};
  return detail::queue(backend, stream, op, a, {a.ids, a.dx}, {a.dtable}, a.workspace);
}

}  // namespace strata::kernels
