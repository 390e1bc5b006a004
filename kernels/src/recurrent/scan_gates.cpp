#include <strata/kernels/recurrent/scan_gates.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "partial_sums.h"
#include "recurrent/gate_math.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(scan_gates_forward, ScanGatesForwardArgs);
STRATA_OP(scan_gates_backward, ScanGatesBackwardArgs);

namespace {

template <class T>
void find_steps(const ScanGatesForwardArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.dt);
  const auto *const a_log = a.a_log.as<float>(), *const dt_bias = a.dt_bias.as<float>();
  dispatch::parallel_for_ranges(
      pool, dispatch::row_count(a.dt), detail::rows_per_item(16 * n),
      [&](std::int64_t first, std::int64_t rows) {
        for (std::int64_t t = first; t < first + rows; ++t)
          for (std::int64_t h = 0; h < n; ++h) {
            const std::int64_t at = t * n + h;
            const float step =
                detail::scan_step(to_f32(a.dt.as<T>()[at]), dt_bias[h], a.limits.low, a.limits.high).value;
            a.step.as<float>()[at] = step;
            a.g.as<float>()[at] = detail::scan_decay_gate(a_log[h], step);
          }
      });
}

// A block's partial sums are those of a_log, then those of dt_bias.
template <class T>
void find_step_gradients(const ScanGatesBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t n = dispatch::row_length(a.dt);
  const bool has_step = dispatch::is_present(a.dstep), has_g = dispatch::is_present(a.dg);
  const auto *const a_log = a.a_log.as<float>(), *const dt_bias = a.dt_bias.as<float>();
  auto* const partials = reinterpret_cast<float*>(a.workspace.data);
  const std::int64_t blocks = detail::sum_row_blocks(
      dispatch::row_count(a.dt), 2 * n, partials, pool, [&](std::int64_t t, float* sum) {
        for (std::int64_t h = 0; h < n; ++h) {
          const std::int64_t at = t * n + h;
          const detail::ScanStep step =
              detail::scan_step(to_f32(a.dt.as<T>()[at]), dt_bias[h], a.limits.low, a.limits.high);
          const float dg = has_g ? a.dg.as<float>()[at] : 0.0f;
          const float d =
              detail::scan_gates_backward_of(step, a_log[h], has_step ? a.dstep.as<float>()[at] : 0.0f, dg);
          sum[h] = sum[h] + dg * detail::scan_decay_gate(a_log[h], step.value);
          sum[n + h] = sum[n + h] + d;
          a.ddt.as<T>()[at] = from_f32<T>(d);
        }
      });
  detail::sum_partials(partials, blocks, 2 * n, a.da_log, a.accumulate_da_log, pool);
  detail::sum_partials(partials + n, blocks, 2 * n, a.ddt_bias, a.accumulate_ddt_bias, pool);
}

/// The operands that both ops have.
template <class Args>
void check_steps(dispatch::Check& check, const Args& a, std::int64_t rows, std::int64_t n) {
  check.rows("dt", a.dt, rows, n)
      .shape("a_log", a.a_log, DType::f32, {n})
      .shape("dt_bias", a.dt_bias, DType::f32, {n})
      .require(a.limits.low >= 0.0f && a.limits.low <= a.limits.high, "steps are limited to ", a.limits.low,
               " to ", a.limits.high, "; the first must be 0 or more and no more than the second");
}

}  // namespace

void scan_gates_forward_host(const ScanGatesForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dt.dtype, [&]<class T>(std::type_identity<T>) { find_steps<T>(a, pool); });
}
void scan_gates_backward_host(const ScanGatesBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dt.dtype,
                         [&]<class T>(std::type_identity<T>) { find_step_gradients<T>(a, pool); });
}

Status scan_gates_forward_async(Backend& backend, Stream& stream, const ScanGatesForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dt), n = dispatch::row_length(a.dt);
  dispatch::Check check("scan_gates_forward", "dt", a.dt);
  check_steps(check, a, rows, n);
  STRATA_TRY(check.rows("step", a.step, DType::f32, rows, n).rows("g", a.g, DType::f32, rows, n).status());
  return dispatch::enqueue(backend, stream, scan_gates_forward_op, a, {a.dt, a.a_log, a.dt_bias},
                           {a.step, a.g});
}

std::size_t scan_gates_backward_workspace_bytes(std::int64_t rows, std::int64_t heads) noexcept {
  return detail::row_sums_bytes(rows, 2 * heads);
}
Status scan_gates_backward_async(Backend& backend, Stream& stream, const ScanGatesBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.dt), n = dispatch::row_length(a.dt);
  dispatch::Check check("scan_gates_backward", "dt", a.dt);
  check_steps(check, a, rows, n);
  STRATA_TRY(check.optional_elements("dstep", a.dstep, DType::f32, rows * n)
                 .optional_elements("dg", a.dg, DType::f32, rows * n)
                 .rows("ddt", a.ddt, rows, n)
                 .shape("da_log", a.da_log, DType::f32, {n})
                 .shape("ddt_bias", a.ddt_bias, DType::f32, {n})
                 .workspace(a.workspace, scan_gates_backward_workspace_bytes(rows, n))
                 .status());
  return dispatch::enqueue(backend, stream, scan_gates_backward_op, a,
                           {a.dt, a.a_log, a.dt_bias, a.dstep, a.dg}, {a.ddt, a.da_log, a.ddt_bias},
                           a.workspace);
}

}  // namespace strata::kernels
