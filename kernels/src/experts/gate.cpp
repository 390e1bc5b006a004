#include <strata/kernels/experts/gate.h>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "expert_gate_table.h"
#include "work_split.h"

namespace strata::kernels {
STRATA_OP(expert_gate_forward, ExpertGateForwardArgs);
STRATA_OP(expert_gate_backward, ExpertGateBackwardArgs);

template <>
const detail::ExpertGateTable<float>& detail::expert_gate_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(expert_gate_f32);
}
template <>
const detail::ExpertGateTable<bf16>& detail::expert_gate_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(expert_gate_bf16);
}
template <>
const detail::ExpertGateTable<f16>& detail::expert_gate_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(expert_gate_f16);
}

namespace {

/// Calls body(table, row) for the rows of a gate, in parallel.
template <class T, class Body>
void each_row(const TensorView& of, ThreadPool& pool, const Body& body) {
  const detail::ExpertGateTable<T>& table = detail::expert_gate_table<T>();
  dispatch::parallel_for_ranges(pool, dispatch::row_count(of),
                                detail::rows_per_item(dispatch::row_length(of)),
                                [&](std::int64_t first, std::int64_t n) {
                                  for (std::int64_t r = first; r < first + n; ++r) body(table, r);
                                });
}

/// The choice of a row.
std::int64_t choice_of(const TensorView& source, std::int64_t row) {
  return dispatch::is_present(source) ? source.as<std::int32_t>()[row] : row;
}

/// Where the ups of a row of `f` gates are; without ups, the gates stand for them.
std::int64_t ups_after(const ExpertGate& gate, std::int64_t f) { return (gate.parts() - 1) * f; }

void check_gate(dispatch::Check& check, const ExpertGate& gate, const TensorView& gate_up,
                const TensorView& weights, const TensorView& source, std::int64_t rows, std::int64_t f) {
  check.rows("gate_up", gate_up, rows, gate.parts() * f)
      .elements("weights", weights, DType::f32, rows)
      .optional_elements("source", source, DType::i32, rows);
  check.require(gate.kind != ExpertGate::Kind::clamped || gate.limit > 0, "limit is ", gate.limit,
                "; it must be above 0");
}

}  // namespace

void expert_gate_forward_host(const ExpertGateForwardArgs& a, ThreadPool& pool) {
  const std::int64_t f = dispatch::row_length(a.a);
  detail::dispatch_dtype(a.a.dtype, [&]<class T>(std::type_identity<T>) {
    each_row<T>(a.a, pool, [&](const auto& table, std::int64_t r) {
      const T* const g = a.gate_up.as<T>() + r * a.gate.parts() * f;
      table.forward(a.gate, g, g + ups_after(a.gate, f), a.weights.as<float>()[choice_of(a.source, r)],
                    a.a.as<T>() + r * f, f);
    });
  });
}

void expert_gate_backward_host(const ExpertGateBackwardArgs& a, ThreadPool& pool) {
  const std::int64_t f = dispatch::row_length(a.da);
  detail::dispatch_dtype(a.da.dtype, [&]<class T>(std::type_identity<T>) {
    each_row<T>(a.da, pool, [&](const auto& table, std::int64_t r) {
      const std::int64_t up = ups_after(a.gate, f);
      const T* const g = a.gate_up.as<T>() + r * a.gate.parts() * f;
      T* const dg = a.dgate_up.as<T>() + r * a.gate.parts() * f;
      const std::int64_t choice = choice_of(a.source, r);
      a.dweights.as<float>()[choice] = table.backward(a.gate, g, g + up, a.weights.as<float>()[choice],
                                                      a.da.as<T>() + r * f, dg, dg + up, f);
    });
  });
}

Status expert_gate_forward_async(Backend& backend, Stream& stream, const ExpertGateForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.a), f = dispatch::row_length(a.a);
  dispatch::Check check("expert_gate_forward", "gate_up", a.gate_up);
  check_gate(check, a.gate, a.gate_up, a.weights, a.source, rows, f);
  STRATA_TRY(check.rows("a", a.a, rows, f).status());
  return dispatch::enqueue(backend, stream, expert_gate_forward_op, a, {a.gate_up, a.weights, a.source},
                           {a.a});
}

Status expert_gate_backward_async(Backend& backend, Stream& stream, const ExpertGateBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.da), f = dispatch::row_length(a.da);
  dispatch::Check check("expert_gate_backward", "gate_up", a.gate_up);
  check_gate(check, a.gate, a.gate_up, a.weights, a.source, rows, f);
  STRATA_TRY(check.rows("da", a.da, rows, f)
                 .rows("dgate_up", a.dgate_up, rows, a.gate.parts() * f)
                 .elements("dweights", a.dweights, DType::f32, rows)
                 .status());
  return dispatch::enqueue(backend, stream, expert_gate_backward_op, a,
                           {a.gate_up, a.weights, a.source, a.da}, {a.dgate_up, a.dweights});
}

}  // namespace strata::kernels
