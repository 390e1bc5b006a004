#include <strata/dispatch/op.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention.h>
#include <strata/runtime/threads/thread_pool.h>

#include "attention/merge_heads.h"
#include "dtype_dispatch.h"
#include "partial_sums.h"

namespace strata::kernels {

STRATA_OP(attention_backward_sinks, AttentionBackwardSinksArgs);

namespace {

template <class T>
void sum_sink_gradients(const AttentionBackwardSinksArgs& a, ThreadPool& pool) {
  const std::int64_t heads = a.sinks.n_elems(), rows = a.lse.n_elems() / heads;
  pool.parallel_for(heads, [&](std::int64_t head) {
    const float sink = to_f32(a.sinks.as<T>()[head]);
    double sum = 0.0;
    for (std::int64_t t = 0; t < rows; ++t) {
      const std::int64_t stat = detail::stat_of(t, head, heads, a.seq);
      sum += detail::sink_gradient(a.lse.as<float>()[stat], a.delta.as<float>()[stat], sink);
    }
    const auto rounded = static_cast<float>(sum);
    detail::store_sum(a.dsinks, head, &rounded, 1, a.accumulate);
  });
}

}  // namespace

void attention_backward_sinks_host(const AttentionBackwardSinksArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.sinks.dtype,
                         [&]<class T>(std::type_identity<T>) { sum_sink_gradients<T>(a, pool); });
}

Status attention_backward_sinks_async(Backend& backend, Stream& stream, const AttentionBackwardSinksArgs& a) {
  const std::int64_t heads = a.sinks.n_elems(), values = a.lse.n_elems();
  STRATA_TRY(
      dispatch::Check("attention_backward_sinks", "sinks", a.sinks)
          .require(heads >= 1 && a.seq >= 1 && values % (heads * a.seq) == 0, values,
                   " values of lse are not a multiple of ", heads, " heads times a seq of ", a.seq)
          .elements("lse", a.lse, DType::f32, values)
          .elements("delta", a.delta, DType::f32, values)
          .elements("dsinks", a.dsinks, a.dsinks.dtype == DType::f32 ? DType::f32 : a.sinks.dtype, heads)
          .require(!a.accumulate || a.dsinks.dtype == DType::f32, "dsinks is ", to_string(a.dsinks.dtype),
                   "; what is accumulated into must be f32")
          .status());
  return dispatch::enqueue(backend, stream, attention_backward_sinks_op, a, {a.lse, a.delta, a.sinks},
                           {a.dsinks});
}

}  // namespace strata::kernels
