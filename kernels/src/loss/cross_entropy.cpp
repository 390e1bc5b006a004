#include <strata/kernels/cross_entropy.h>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cuda/loss/launches.h"

namespace strata::kernels {
namespace {

bool is_one_or_none(const TensorView& view) {
  return !ops::is_present(view) || (view.dtype == DType::f32 && view.n_elems() == 1);
}

}  // namespace

Status cross_entropy_forward_async(Backend& backend, Stream& stream, const CrossEntropyForwardArgs& a) {
  const std::int64_t rows = ops::row_count(a.logits);
  const std::int64_t vocab = ops::row_length(a.logits);
  STRATA_TRY(ops::Check("cross_entropy_forward", "logits", a.logits)
                 .rows("logits", a.logits, rows, vocab)
                 .elements("targets", a.targets, DType::i32, rows)
                 .elements("losses", a.losses, DType::f32, rows)
                 .elements("lse", a.lse, DType::f32, rows)
                 .elements("mean_loss", a.mean_loss, DType::f32, 1)
                 .require(vocab >= 1, "logits have rows of 0 elements")
                 .require(is_one_or_none(a.divisor), "divisor must be one f32 value")
                 .status());
  constexpr ops::OpImpl<CrossEntropyForwardArgs> op = {"cross_entropy_forward", &cross_entropy_forward_host,
                                                       &cuda::cross_entropy_forward};
  return ops::enqueue(backend, stream, op, a, {a.logits, a.targets, a.divisor},
                      {a.losses, a.lse, a.mean_loss});
}

Status cross_entropy_backward_async(Backend& backend, Stream& stream, const CrossEntropyBackwardArgs& a) {
  const std::int64_t rows = ops::row_count(a.logits);
  const std::int64_t vocab = ops::row_length(a.logits);
  STRATA_TRY(ops::Check("cross_entropy_backward", "logits", a.logits)
                 .rows("logits", a.logits, rows, vocab)
                 .elements("targets", a.targets, DType::i32, rows)
                 .elements("lse", a.lse, DType::f32, rows)
                 .rows("dlogits", a.dlogits, rows, vocab)
                 .require(vocab >= 1, "logits have rows of 0 elements")
                 .require(is_one_or_none(a.divisor), "divisor must be one f32 value")
                 .status());
  constexpr ops::OpImpl<CrossEntropyBackwardArgs> op = {
      "cross_entropy_backward", &cross_entropy_backward_host, &cuda::cross_entropy_backward};
  return ops::enqueue(backend, stream, op, a, {a.logits, a.targets, a.lse, a.divisor}, {a.dlogits});
}

}  // namespace strata::kernels
