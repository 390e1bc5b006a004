#include <strata/kernels/embedding.h>

#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {
namespace {

detail::Check check(const char* op, const TensorView& tokens, const TensorView& x, const char* x_name,
                    const TensorView& wte, const char* wte_name, const TensorView& wpe, const char* wpe_name,
                    std::int64_t seq) {
  const std::int64_t h = detail::row_length(wte);
  const std::int64_t t = tokens.n_elems();
  detail::Check check(op);
  check.shape(wte_name, wte, DType::f32, {wte.shape.dims[0], h})
      .shape(wpe_name, wpe, DType::f32, {wpe.shape.dims[0], h})
      .elements("tokens", tokens, DType::i32, t)
      .rows(x_name, x, t, h)
      .that(seq >= 1 && wpe.shape.dims[0] >= seq, wpe_name, " has ", wpe.shape.dims[0], " positions; seq is ",
            seq);
  return check;
}

}  // namespace

Status embedding_forward_async(Backend& backend, Stream& stream, const EmbeddingForwardArgs& a) {
  STRATA_TRY(check("embedding_forward", a.tokens, a.x, "x", a.wte, "wte", a.wpe, "wpe", a.seq).status());
  constexpr detail::Op<EmbeddingForwardArgs> op = {"embedding_forward", &embedding_forward_host,
                                                   &cuda::embedding_forward};
  return detail::queue(backend, stream, op, a, {a.tokens, a.wte, a.wpe}, {a.x});
}

std::size_t embedding_backward_workspace_bytes(std::int64_t tokens, std::int64_t vocab) noexcept {
  return static_cast<std::size_t>(vocab + 1 + tokens) * sizeof(std::int32_t);
}

Status embedding_backward_async(Backend& backend, Stream& stream, const EmbeddingBackwardArgs& a) {
  STRATA_TRY(check("embedding_backward", a.tokens, a.dx, "dx", a.dwte, "dwte", a.dwpe, "dwpe", a.seq)
                 .workspace(a.workspace,
                            embedding_backward_workspace_bytes(a.tokens.n_elems(), a.dwte.shape.dims[0]))
                 .status());
  constexpr detail::Op<EmbeddingBackwardArgs> op = {"embedding_backward", &embedding_backward_host,
                                                    &cuda::embedding_backward};
  return detail::queue(backend, stream, op, a, {a.tokens, a.dx}, {a.dwte, a.dwpe}, a.workspace);
}

}  // namespace strata::kernels
