#include <strata/kernels/recurrent/state_scan.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/threads/thread_pool.h>

#include "dtype_dispatch.h"
#include "partial_sums.h"
#include "recurrent/scan_operands.h"
#include "state_scan_table.h"

namespace strata::kernels {
STRATA_OP(state_scan_forward, StateScanForwardArgs);
STRATA_OP(state_scan_backward, StateScanBackwardArgs);
STRATA_OP(cached_state_scan, CachedStateScanArgs);

template <>
const detail::StateScanTable<float>& detail::state_scan_table<float>() noexcept {
  return STRATA_ACTIVE_TABLE(state_scan_f32);
}
template <>
const detail::StateScanTable<bf16>& detail::state_scan_table<bf16>() noexcept {
  return STRATA_ACTIVE_TABLE(state_scan_bf16);
}
template <>
const detail::StateScanTable<f16>& detail::state_scan_table<f16>() noexcept {
  return STRATA_ACTIVE_TABLE(state_scan_f16);
}

namespace {

std::size_t scan_slots_bytes(std::int64_t pairs, std::int64_t slot_floats) {
  return static_cast<std::size_t>(detail::delta_slots(pairs) * slot_floats) * sizeof(float);
}

/// Calls body(slot, number of slots) for all slots, in parallel.
template <class Operands, class Body>
void each_scan_slot(const Operands& a, ThreadPool& pool, const Body& body) {
  const std::int64_t slots = detail::delta_slots(a.of.pairs);
  pool.parallel_for(slots, [&](std::int64_t at) { body(at, slots); });
}

/// The gradients of B and C from those of blocks of heads.
template <class T>
void sum_key_gradients(const detail::ScanBackwardOperands<T>& a, std::int64_t tokens, ThreadPool& pool) {
  const std::int64_t dk = a.of.d.dk, width = a.of.width();
  dispatch::parallel_for_ranges(pool, tokens, detail::rows_per_item(a.of.blocks() * 2 * dk),
                                [&](std::int64_t first, std::int64_t n) {
                                  for (std::int64_t t = first; t < first + n; ++t)
                                    for (std::int64_t part = 0; part < 2; ++part)
                                      for (std::int64_t group = 0; group < a.of.heads.groups; ++group) {
                                        T* const into = a.dxbc + t * width + a.key_column(part, group, 0);
                                        for (std::int64_t i = 0; i < dk; ++i)
                                          into[i] = from_f32<T>(a.key_gradient(t, part, group, i));
                                      }
                                });
}

bool are_valid_scan_heads(const ScanHeads& h) {
  return h.groups >= 1 && h.heads >= 1 && h.heads % h.groups == 0 && h.state_dim >= 1 && h.head_dim >= 1;
}
/// The operands that all ops of the scan have.
template <class Args>
void check_scan_rows(dispatch::Check& check, const Args& a, std::int64_t rows) {
  const ScanHeads& h = a.heads;
  check.require(are_valid_scan_heads(h), h.heads, " heads of ", h.head_dim, " and ", h.groups,
                " groups of states of ", h.state_dim,
                "; there must be at least one of each, and the first must be a multiple of the second");
  check.rows("xbc", a.xbc, rows, h.xbc_width())
      .rows("step", a.step, DType::f32, rows, h.heads)
      .rows("g", a.g, DType::f32, rows, h.heads)
      .shape("d", a.d, DType::f32, {h.heads});
}
template <class Args>
void check_scan_sequences(dispatch::Check& check, const Args& a, std::int64_t rows) {
  check_scan_rows(check, a, rows);
  check
      .require(a.heads.seq >= 1 && rows % std::max(a.heads.seq, 1) == 0, rows, " rows in sequences of ",
               a.heads.seq, "; the first must be a multiple of the second")
      .optional_elements("doc_start", a.doc_start, DType::i32, rows);
}

}  // namespace

void state_scan_forward_host(const StateScanForwardArgs& args, ThreadPool& pool) {
  detail::dispatch_dtype(args.xbc.dtype, [&]<class T>(std::type_identity<T>) {
    const auto a = detail::scan_forward_operands<T>(args);
    each_scan_slot(a, pool, [&](std::int64_t at, std::int64_t slots) {
      detail::state_scan_table<T>().forward(a, at, slots);
    });
  });
}
void state_scan_backward_host(const StateScanBackwardArgs& args, ThreadPool& pool) {
  detail::dispatch_dtype(args.xbc.dtype, [&]<class T>(std::type_identity<T>) {
    const auto a = detail::scan_backward_operands<T>(args);
    const std::int64_t tokens = dispatch::row_count(args.xbc), heads = args.heads.heads;
    each_scan_slot(a, pool, [&](std::int64_t at, std::int64_t slots) {
      detail::state_scan_table<T>().backward(a, at, slots);
    });
    sum_key_gradients(a, tokens, pool);
    float* const partials = a.dots + tokens * heads;
    const std::int64_t blocks =
        detail::sum_row_blocks(tokens, heads, partials, pool, [&](std::int64_t t, float* sum) {
          for (std::int64_t h = 0; h < heads; ++h) sum[h] = sum[h] + a.dots[t * heads + h];
        });
    detail::sum_partials(partials, blocks, heads, args.dd, args.accumulate_dd, pool);
  });
}
void cached_state_scan_host(const CachedStateScanArgs& args, ThreadPool& pool) {
  detail::dispatch_dtype(args.xbc.dtype, [&]<class T>(std::type_identity<T>) {
    const auto a = detail::scan_cached_operands<T>(args);
    for (std::int64_t r = 0; r < a.rows.count; ++r)
      STRATA_ASSERT(
          a.rows.slots[r] < args.state.shape.dims[0] && (a.rows.slots[r] < 0 || a.rows.positions[r] >= 0),
          "row ", r, " is at position ", a.rows.positions[r], " of sequence ", a.rows.slots[r], " of ",
          args.state.shape.dims[0]);
    each_scan_slot(a, pool, [&](std::int64_t at, std::int64_t slots) {
      detail::state_scan_table<T>().cached(a, at, slots);
    });
  });
}

std::size_t state_scan_forward_workspace_bytes(std::int64_t tokens, const ScanHeads& heads) noexcept {
  return are_valid_scan_heads(heads)
             ? scan_slots_bytes(detail::scan_pairs(tokens, heads),
                                detail::scan_slot_floats<detail::ScanScratch>(heads, 0))
             : 0;
}
std::size_t state_scan_backward_workspace_bytes(std::int64_t tokens, const ScanHeads& heads) noexcept {
  if (!are_valid_scan_heads(heads)) return 0;
  const detail::ScanBackwardSpace space = detail::scan_backward_space(tokens, heads);
  return static_cast<std::size_t>(space.slots + space.keys + space.dots + space.sums) * sizeof(float);
}
std::int64_t scan_state_elems(const ScanHeads& heads) noexcept {
  return are_valid_scan_heads(heads)
             ? detail::DeltaWindow::floats(heads.state_dim, heads.head_dim, heads.block())
             : 0;
}
std::size_t cached_state_scan_workspace_bytes(const ScanHeads& heads) noexcept {
  return are_valid_scan_heads(heads)
             ? scan_slots_bytes(heads.blocks(), detail::scan_slot_floats<detail::ScanScratch>(heads, 0))
             : 0;
}

Status state_scan_forward_async(Backend& backend, Stream& stream, const StateScanForwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.xbc);
  dispatch::Check check("state_scan_forward", "xbc", a.xbc);
  check_scan_sequences(check, a, rows);
  const std::int64_t sequences = a.heads.seq > 0 ? rows / a.heads.seq : 0,
                     states = sequences * a.heads.heads * a.heads.state_dim * a.heads.head_dim;
  STRATA_TRY(check.rows("out", a.out, rows, a.heads.out_width())
                 .optional_elements("initial", a.initial, DType::f32, states)
                 .optional_elements("last", a.last, DType::f32, states)
                 .workspace(a.workspace, state_scan_forward_workspace_bytes(rows, a.heads))
                 .status());
  return dispatch::enqueue(backend, stream, state_scan_forward_op, a,
                           {a.xbc, a.step, a.g, a.d, a.doc_start, a.initial}, {a.out, a.last}, a.workspace);
}
Status state_scan_backward_async(Backend& backend, Stream& stream, const StateScanBackwardArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.xbc);
  dispatch::Check check("state_scan_backward", "xbc", a.xbc);
  check_scan_sequences(check, a, rows);
  STRATA_TRY(check.rows("dout", a.dout, rows, a.heads.out_width())
                 .rows("dxbc", a.dxbc, rows, a.heads.xbc_width())
                 .rows("dstep", a.dstep, DType::f32, rows, a.heads.heads)
                 .rows("dg", a.dg, DType::f32, rows, a.heads.heads)
                 .shape("dd", a.dd, DType::f32, {a.heads.heads})
                 .workspace(a.workspace, state_scan_backward_workspace_bytes(rows, a.heads))
                 .status());
  return dispatch::enqueue(backend, stream, state_scan_backward_op, a,
                           {a.xbc, a.step, a.g, a.d, a.doc_start, a.dout}, {a.dxbc, a.dstep, a.dg, a.dd},
                           a.workspace);
}
Status cached_state_scan_async(Backend& backend, Stream& stream, const CachedStateScanArgs& a) {
  const std::int64_t rows = dispatch::row_count(a.xbc);
  dispatch::Check check("cached_state_scan", "xbc", a.xbc);
  check_scan_rows(check, a, rows);
  STRATA_TRY(check.rows("out", a.out, rows, a.heads.out_width())
                 .elements("positions", a.positions, DType::i32, rows)
                 .elements("slots", a.slots, DType::i32, rows)
                 .rows("state", a.state, DType::f32,
                       a.state.shape.rank > 0 ? a.state.shape.dims[0] * a.heads.blocks() : 0,
                       scan_state_elems(a.heads))
                 .workspace(a.workspace, cached_state_scan_workspace_bytes(a.heads))
                 .status());
  return dispatch::enqueue(backend, stream, cached_state_scan_op, a,
                           {a.xbc, a.step, a.g, a.d, a.positions, a.slots}, {a.state, a.out}, a.workspace);
}

}  // namespace strata::kernels
