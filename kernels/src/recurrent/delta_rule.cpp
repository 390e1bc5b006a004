#include <strata/kernels/recurrent/delta_rule.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/threads/thread_pool.h>

#include "delta_rule_table.h"
#include "dtype_dispatch.h"
#include "recurrent/delta_operands.h"

namespace strata::kernels {
STRATA_OP(delta_rule_forward, DeltaRuleForwardArgs);
STRATA_OP(delta_rule_backward, DeltaRuleBackwardArgs);
STRATA_OP(cached_delta_rule, CachedDeltaRuleArgs);

template <>
const detail::DeltaRuleTable<float>& detail::delta_rule_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(delta_rule_f32);
}
template <>
const detail::DeltaRuleTable<bf16>& detail::delta_rule_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(delta_rule_bf16);
}
template <>
const detail::DeltaRuleTable<f16>& detail::delta_rule_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(delta_rule_f16);
}

namespace {

std::size_t slots_bytes(std::int64_t pairs, std::int64_t slot_floats) {
  return static_cast<std::size_t>(detail::delta_slots(pairs) * slot_floats) * sizeof(float);
}

/// Calls body(slot, number of slots) for all slots, in parallel.
template <class Operands, class Body>
void each_slot(const Operands& a, ThreadPool& pool, const Body& body) {
  const std::int64_t slots = detail::delta_slots(a.of.pairs);
  pool.parallel_for(slots, [&](std::int64_t at) { body(at, slots); });
}

bool are_valid(const DeltaHeads& h) {
  return h.key_heads >= 1 && h.value_heads >= 1 && h.value_heads % h.key_heads == 0 && h.key_dim >= 1 &&
         h.value_dim >= 1;
}
/// The operands that all ops of the rule have.
template <class Args>
void check_rows(dispatch::Check& check, const Args& a, std::int64_t rows) {
  const DeltaHeads& h = a.heads;
  check.require(are_valid(h), h.value_heads, " value heads of ", h.value_dim, " and ", h.key_heads,
                " key heads of ", h.key_dim,
                "; there must be at least one of each, and the first must be a multiple of the second");
  check.rows("qkv", a.qkv, rows, h.qkv_width())
      .rows("g", a.g, DType::f32, rows, h.value_heads)
      .rows("beta", a.beta, DType::f32, rows, h.value_heads);
}
template <class Args>
void check_delta_sequences(dispatch::Check& check, const Args& a, std::int64_t rows) {
  check_rows(check, a, rows);
  check
      .require(a.heads.seq >= 1 && rows % std::max(a.heads.seq, 1) == 0, rows, " rows in sequences of ",
               a.heads.seq, "; the first must be a multiple of the second")
      .optional_elements("doc_start", a.doc_start, DType::i32, rows);
}

}  // namespace

void delta_rule_forward_host(const DeltaRuleForwardArgs& args, ThreadPool& pool) {
  detail::dispatch_dtype(args.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    const auto a = detail::delta_forward_operands<T>(args);
    each_slot(a, pool, [&](std::int64_t at, std::int64_t slots) {
      detail::delta_rule_table<T>().forward(a, at, slots);
    });
  });
}
void delta_rule_backward_host(const DeltaRuleBackwardArgs& args, ThreadPool& pool) {
  detail::dispatch_dtype(args.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    const auto a = detail::delta_backward_operands<T>(args);
    each_slot(a, pool, [&](std::int64_t at, std::int64_t slots) {
      detail::delta_rule_table<T>().backward(a, at, slots);
    });
  });
}
void cached_delta_rule_host(const CachedDeltaRuleArgs& args, ThreadPool& pool) {
  detail::dispatch_dtype(args.qkv.dtype, [&]<class T>(std::type_identity<T>) {
    const auto a = detail::delta_cached_operands<T>(args);
    for (std::int64_t r = 0; r < a.rows.count; ++r)
      STRATA_ASSERT(
          a.rows.slots[r] < args.state.shape.dims[0] && (a.rows.slots[r] < 0 || a.rows.positions[r] >= 0),
          "row ", r, " is at position ", a.rows.positions[r], " of sequence ", a.rows.slots[r], " of ",
          args.state.shape.dims[0]);
    each_slot(a, pool, [&](std::int64_t at, std::int64_t slots) {
      detail::delta_rule_table<T>().cached(a, at, slots);
    });
  });
}

std::size_t delta_rule_forward_workspace_bytes(std::int64_t tokens, const DeltaHeads& heads) noexcept {
  return are_valid(heads) ? slots_bytes(detail::delta_pairs(tokens, heads),
                                        detail::delta_slot_floats<detail::DeltaScratch>(heads, 0))
                          : 0;
}
std::size_t delta_rule_backward_workspace_bytes(std::int64_t tokens, const DeltaHeads& heads) noexcept {
  return are_valid(heads) ? slots_bytes(detail::delta_pairs(tokens, heads),
                                        detail::delta_slot_floats<detail::DeltaBackwardScratch>(
                                            heads, detail::delta_border_floats(heads)))
                          : 0;
}
std::int64_t delta_state_elems(const DeltaHeads& heads) noexcept {
  return are_valid(heads) ? detail::DeltaWindow::floats(heads.key_dim, heads.value_dim, heads.group()) : 0;
}
std::size_t cached_delta_rule_workspace_bytes(const DeltaHeads& heads) noexcept {
  return are_valid(heads)
             ? slots_bytes(heads.key_heads, detail::delta_slot_floats<detail::DeltaScratch>(heads, 0))
             : 0;
}

Status delta_rule_forward_async(Backend& backend, Stream& stream, const DeltaRuleForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  dispatch::Check check("delta_rule_forward", "qkv", a.qkv);
  check_delta_sequences(check, a, rows);
  const std::int64_t sequences = a.heads.seq > 0 ? rows / a.heads.seq : 0,
                     states = sequences * a.heads.value_heads * a.heads.key_dim * a.heads.value_dim;
  STRATA_TRY(check.rows("out", a.out, rows, a.heads.out_width())
                 .optional_elements("initial", a.initial, DType::f32, states)
                 .optional_elements("last", a.last, DType::f32, states)
                 .workspace(a.workspace, delta_rule_forward_workspace_bytes(rows, a.heads))
                 .status());
  return dispatch::enqueue(backend, stream, delta_rule_forward_op, a,
                           {a.qkv, a.g, a.beta, a.doc_start, a.initial}, {a.out, a.last}, a.workspace);
}
Status delta_rule_backward_async(Backend& backend, Stream& stream, const DeltaRuleBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  dispatch::Check check("delta_rule_backward", "qkv", a.qkv);
  check_delta_sequences(check, a, rows);
  STRATA_TRY(check.rows("dout", a.dout, rows, a.heads.out_width())
                 .rows("dqkv", a.dqkv, rows, a.heads.qkv_width())
                 .rows("dg", a.dg, DType::f32, rows, a.heads.value_heads)
                 .rows("dbeta", a.dbeta, DType::f32, rows, a.heads.value_heads)
                 .workspace(a.workspace, delta_rule_backward_workspace_bytes(rows, a.heads))
                 .status());
  return dispatch::enqueue(backend, stream, delta_rule_backward_op, a,
                           {a.qkv, a.g, a.beta, a.doc_start, a.dout}, {a.dqkv, a.dg, a.dbeta}, a.workspace);
}
Status cached_delta_rule_async(Backend& backend, Stream& stream, const CachedDeltaRuleArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.qkv);
  dispatch::Check check("cached_delta_rule", "qkv", a.qkv);
  check_rows(check, a, rows);
  STRATA_TRY(check.rows("out", a.out, rows, a.heads.out_width())
                 .elements("positions", a.positions, DType::i32, rows)
                 .elements("slots", a.slots, DType::i32, rows)
                 .rows("state", a.state, DType::f32,
                       a.state.shape.rank > 0 ? a.state.shape.dims[0] * a.heads.key_heads : 0,
                       delta_state_elems(a.heads))
                 .workspace(a.workspace, cached_delta_rule_workspace_bytes(a.heads))
                 .status());
  return dispatch::enqueue(backend, stream, cached_delta_rule_op, a,
                           {a.qkv, a.g, a.beta, a.positions, a.slots}, {a.state, a.out}, a.workspace);
}

}  // namespace strata::kernels
