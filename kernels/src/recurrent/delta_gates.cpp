#include <strata/kernels/recurrent/delta_gates.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "partial_sums.h"
#include "recurrent/gate_math.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(delta_gates_forward, DeltaGatesForwardArgs);
STRATA_OP(delta_gates_backward, DeltaGatesBackwardArgs);

namespace {

template <class T>
void find_gates(const DeltaGatesForwardArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.g);
  const auto *const a_log = a.a_log.as<float>(), *const dt_bias = a.dt_bias.as<float>();
  dispatch::parallel_for_ranges(pool, dispatch::row_count(a.ba), detail::rows_per_item(16 * n),
                                [&](std::int64_t first, std::int64_t rows) {
                                  for (std::int64_t t = first; t < first + rows; ++t)
                                    for (std::int64_t h = 0; h < n; ++h) {
                                      const T* const row = a.ba.as<T>() + t * 2 * n;
                                      a.beta.as<float>()[t * n + h] = simd::sigmoid_of(to_f32(row[h])).value;
                                      a.g.as<float>()[t * n + h] =
                                          detail::delta_decay_gate(to_f32(row[n + h]), a_log[h], dt_bias[h]);
                                    }
                                });
}

const float* gradient_or_null(const TensorView& view) {
  return dispatch::is_present(view) ? view.as<float>() : nullptr;
}

// A block's partial sums are those of a_log, then those of dt_bias.
template <class T>
void find_gate_gradients(const DeltaGatesBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.ba) / 2;
  const float *const dg_of = gradient_or_null(a.dg), *const dbeta_of = gradient_or_null(a.dbeta);
  const auto *const a_log = a.a_log.as<float>(), *const dt_bias = a.dt_bias.as<float>();
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  const std::int64_t blocks = detail::sum_row_blocks(
      dispatch::row_count(a.ba), 2 * n, partials, pool, [&](std::int64_t t, float* sum) {
        const T* const row = a.ba.as<T>() + t * 2 * n;
        T* const into = a.dba.as<T>() + t * 2 * n;
        for (std::int64_t h = 0; h < n; ++h) {
          const float x = to_f32(row[n + h]), dg = dg_of == nullptr ? 0.0f : dg_of[t * n + h],
                      dbeta = dbeta_of == nullptr ? 0.0f : dbeta_of[t * n + h];
          const float dx = detail::delta_decay_gate_backward(x, a_log[h], dt_bias[h], dg);
          sum[h] = sum[h] + dg * detail::delta_decay_gate(x, a_log[h], dt_bias[h]);
          sum[n + h] = sum[n + h] + dx;
          into[h] = from_f32<T>(detail::delta_beta_backward(to_f32(row[h]), dbeta));
          into[n + h] = from_f32<T>(dx);
        }
      });
  detail::sum_partials(partials, blocks, 2 * n, a.da_log, a.accumulate_da_log, pool);
  detail::sum_partials(partials + n, blocks, 2 * n, a.ddt_bias, a.accumulate_ddt_bias, pool);
}

}  // namespace

void delta_gates_forward_host(const DeltaGatesForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.ba.dtype, [&]<class T>(std::type_identity<T>) { find_gates<T>(a, pool); });
}
void delta_gates_backward_host(const DeltaGatesBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.ba.dtype,
                         [&]<class T>(std::type_identity<T>) { find_gate_gradients<T>(a, pool); });
}

Status delta_gates_forward_async(Backend& backend, Stream& stream, const DeltaGatesForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.ba), n = dispatch::row_length(a.ba) / 2;
  STRATA_TRY(dispatch::Check("delta_gates_forward", "ba", a.ba)
                 .rows("ba", a.ba, rows, 2 * n)
                 .shape("a_log", a.a_log, DType::f32, {n})
                 .shape("dt_bias", a.dt_bias, DType::f32, {n})
                 .rows("g", a.g, DType::f32, rows, n)
                 .rows("beta", a.beta, DType::f32, rows, n)
                 .status());
  return dispatch::enqueue(backend, stream, delta_gates_forward_op, a, {a.ba, a.a_log, a.dt_bias},
                           {a.g, a.beta});
}

std::size_t delta_gates_backward_workspace_bytes(std::int64_t rows, std::int64_t heads) noexcept {
  return detail::row_sums_bytes(rows, 2 * heads);
}
Status delta_gates_backward_async(Backend& backend, Stream& stream, const DeltaGatesBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.ba), n = dispatch::row_length(a.ba) / 2;
  STRATA_TRY(dispatch::Check("delta_gates_backward", "ba", a.ba)
                 .rows("ba", a.ba, rows, 2 * n)
                 .shape("a_log", a.a_log, DType::f32, {n})
                 .shape("dt_bias", a.dt_bias, DType::f32, {n})
                 .optional_elements("dg", a.dg, DType::f32, rows * n)
                 .optional_elements("dbeta", a.dbeta, DType::f32, rows * n)
                 .rows("dba", a.dba, rows, 2 * n)
                 .shape("da_log", a.da_log, DType::f32, {n})
                 .shape("ddt_bias", a.ddt_bias, DType::f32, {n})
                 .workspace(a.workspace, delta_gates_backward_workspace_bytes(rows, n))
                 .status());
  return dispatch::enqueue(backend, stream, delta_gates_backward_op, a,
                           {a.ba, a.a_log, a.dt_bias, a.dg, a.dbeta}, {a.dba, a.da_log, a.ddt_bias},
                           a.workspace);
}

}  // namespace strata::kernels
