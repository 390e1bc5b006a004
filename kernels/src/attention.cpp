#include <strata/kernels/attention.h>

#include "attention_blocks.h"
#include "cuda_ops.h"
#include "op.h"

namespace strata::kernels {
namespace {

std::size_t score_bytes(std::int64_t tokens, std::int64_t heads, std::int64_t seq) noexcept {
  const std::int64_t slots = detail::attention_slots(detail::attention_pairs(tokens, heads, seq));
  return static_cast<std::size_t>(slots * std::min(detail::kQueryRows, seq) * seq) * sizeof(float);
}

template <class Args>
detail::Check check(const char* op, const Args& a) {
  const std::int64_t rows = detail::row_count(a.qkv);
  const std::int64_t h = detail::row_length(a.qkv) / 3;
  detail::Check check(op);
  check.rows("qkv", a.qkv, rows, 3 * h)
      .that(a.heads >= 1 && h % a.heads == 0, "hidden size ", h, " is not a multiple of ", a.heads, " heads")
      .that(a.seq >= 1 && rows % a.seq == 0, rows, " tokens are not a multiple of seq ", a.seq)
      .rows("out", a.out, rows, h)
      .elements("lse", a.lse, DType::f32, rows * a.heads);
  return check;
}

}  // namespace

std::size_t attention_forward_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                              std::int64_t seq) noexcept {
  return score_bytes(tokens, heads, seq);
}
std::size_t attention_backward_workspace_bytes(std::int64_t tokens, std::int64_t heads,
                                               std::int64_t seq) noexcept {
  return 2 * score_bytes(tokens, heads, seq);
}

Status attention_forward_async(Backend& backend, Stream& stream, const AttentionForwardArgs& a) {
  STRATA_TRY(
      check("attention_forward", a)
          .workspace(a.workspace, attention_forward_workspace_bytes(detail::row_count(a.qkv), a.heads, a.seq))
          .status());
  constexpr detail::Op<AttentionForwardArgs> op = {"attention_forward", &attention_forward_host,
                                                   &cuda::attention_forward};
  return detail::queue(backend, stream, op, a, {a.qkv}, {a.out, a.lse}, a.workspace);
}

Status attention_backward_async(Backend& backend, Stream& stream, const AttentionBackwardArgs& a) {
  const std::int64_t rows = detail::row_count(a.qkv);
  const std::int64_t h3 = detail::row_length(a.qkv);
  STRATA_TRY(check("attention_backward", a)
                 .rows("dout", a.dout, rows, h3 / 3)
                 .rows("dqkv", a.dqkv, rows, h3)
                 .workspace(a.workspace, attention_backward_workspace_bytes(rows, a.heads, a.seq))
                 .status());
  constexpr detail::Op<AttentionBackwardArgs> op = {"attention_backward", &attention_backward_host,
                                                    &cuda::attention_backward};
  return detail::queue(backend, stream, op, a, {a.qkv, a.out, a.lse, a.dout}, {a.dqkv}, a.workspace);
}

}  // namespace strata::kernels
