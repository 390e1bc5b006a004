#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/kernels/values/delta_heads.h>
#include <strata/runtime/tensor_view.h>

#include "recurrent/delta_pairs.h"

/// The operands of the ops of delta_rule.h as the kernels take them (Args are theirs), and the sizes of their
/// workspaces.
namespace strata::kernels::detail {

inline std::int64_t delta_pairs(std::int64_t tokens, const DeltaHeads& heads) noexcept {
  return heads.seq > 0 ? tokens / heads.seq * heads.key_heads : 0;
}
/// The states at the borders of chunks within a sequence; one at least, so that there is an address.
inline std::int64_t border_floats(std::int64_t seq, const DeltaSizes& d) noexcept {
  return std::max<std::int64_t>(1, dispatch::ceil_div(seq, kDeltaChunk) - 1) * d.group * d.dk * d.dv;
}
inline std::int64_t delta_border_floats(const DeltaHeads& heads) noexcept {
  return border_floats(heads.seq, delta_sizes(heads));
}
template <class S>
std::int64_t slot_floats(const DeltaSizes& d, std::int64_t more) noexcept {
  DeltaMemory counts(nullptr);
  const DeltaSlot<S> slot(counts, d, more);
  return counts.floats();
}
template <class S>
std::int64_t delta_slot_floats(const DeltaHeads& heads, std::int64_t more) noexcept {
  return slot_floats<S>(delta_sizes(heads), more);
}

template <class T, class Args>
DeltaOperands<T> delta_operands(const Args& a, std::int64_t pairs, std::int64_t slot) {
  return {.heads = a.heads,
          .d = delta_sizes(a.heads),
          .pairs = pairs,
          .qkv = a.qkv.template as<T>(),
          .g = a.g.template as<float>(),
          .beta = a.beta.template as<float>(),
          .doc_start = nullptr,
          .workspace = reinterpret_cast<float*>(a.workspace.data),
          .slot_floats = slot};
}
template <class T>
T* delta_pointer(const TensorView& view) {
  return dispatch::is_present(view) ? view.as<T>() : nullptr;
}
template <class T, class Args>
DeltaForwardOperands<T> delta_forward_operands(const Args& a) {
  DeltaOperands<T> of = delta_operands<T>(a, delta_pairs(dispatch::row_count(a.qkv), a.heads),
                                          delta_slot_floats<DeltaScratch>(a.heads, 0));
  of.doc_start = delta_pointer<std::int32_t>(a.doc_start);
  return {of, a.out.template as<T>(), delta_pointer<float>(a.initial), delta_pointer<float>(a.last)};
}
template <class T, class Args>
DeltaBackwardOperands<T> delta_backward_operands(const Args& a) {
  const std::int64_t borders = delta_border_floats(a.heads);
  DeltaOperands<T> of = delta_operands<T>(a, delta_pairs(dispatch::row_count(a.qkv), a.heads),
                                          delta_slot_floats<DeltaBackwardScratch>(a.heads, borders));
  of.doc_start = delta_pointer<std::int32_t>(a.doc_start);
  return {of,
          a.dout.template as<T>(),
          a.dqkv.template as<T>(),
          a.dg.template as<float>(),
          a.dbeta.template as<float>(),
          borders};
}
template <class T, class Args>
DeltaCachedOperands<T> delta_cached_operands(const Args& a) {
  return {delta_operands<T>(a, a.heads.key_heads, delta_slot_floats<DeltaScratch>(a.heads, 0)),
          {a.positions.template as<std::int32_t>(), a.slots.template as<std::int32_t>(),
           dispatch::row_count(a.qkv)},
          a.state.template as<float>(),
          a.out.template as<T>()};
}

}  // namespace strata::kernels::detail
