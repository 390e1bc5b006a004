#pragma once

#include "recurrent/delta_operands.h"
#include "recurrent/scan_pairs.h"
#include "work_split.h"

/// The operands of the ops of state_scan.h as the kernels take them (Args are theirs), and the sizes of their
/// workspaces.
namespace strata::kernels::detail {

inline std::int64_t scan_pairs(std::int64_t tokens, const ScanHeads& heads) noexcept {
  return heads.seq > 0 ? tokens / heads.seq * heads.blocks() : 0;
}
inline std::int64_t scan_border_floats(const ScanHeads& heads) noexcept {
  return border_floats(heads.seq, scan_sizes(heads));
}
template <class S>
std::int64_t scan_slot_floats(const ScanHeads& heads, std::int64_t more) noexcept {
  return slot_floats<S>(scan_sizes(heads), more);
}
/// What the derivative's workspace holds, one after the other, in floats.
struct ScanBackwardSpace {
  std::int64_t slots, keys, dots, sums;
};
inline ScanBackwardSpace scan_backward_space(std::int64_t tokens, const ScanHeads& heads) noexcept {
  return {delta_slots(scan_pairs(tokens, heads)) *
              scan_slot_floats<ScanBackwardScratch>(heads, scan_border_floats(heads)),
          tokens * heads.blocks() * 2 * heads.state_dim, tokens * heads.heads,
          static_cast<std::int64_t>(row_sums_bytes(tokens, heads.heads) / sizeof(float))};
}

template <class T, class Args>
ScanOperands<T> scan_operands(const Args& a, std::int64_t pairs, std::int64_t slot) {
  return {.heads = a.heads,
          .d = scan_sizes(a.heads),
          .pairs = pairs,
          .xbc = a.xbc.template as<T>(),
          .step = a.step.template as<float>(),
          .g = a.g.template as<float>(),
          .d_of_heads = a.d.template as<float>(),
          .doc_start = nullptr,
          .workspace = reinterpret_cast<float*>(a.workspace.data),
          .slot_floats = slot};
}
template <class T, class Args>
ScanForwardOperands<T> scan_forward_operands(const Args& a) {
  ScanOperands<T> of = scan_operands<T>(a, scan_pairs(dispatch::row_count(a.xbc), a.heads),
                                        scan_slot_floats<ScanScratch>(a.heads, 0));
  of.doc_start = delta_pointer<std::int32_t>(a.doc_start);
  return {of, a.out.template as<T>(), delta_pointer<float>(a.initial), delta_pointer<float>(a.last)};
}
template <class T, class Args>
ScanBackwardOperands<T> scan_backward_operands(const Args& a) {
  const std::int64_t tokens = dispatch::row_count(a.xbc), borders = scan_border_floats(a.heads);
  const ScanBackwardSpace space = scan_backward_space(tokens, a.heads);
  ScanOperands<T> of = scan_operands<T>(a, scan_pairs(tokens, a.heads),
                                        scan_slot_floats<ScanBackwardScratch>(a.heads, borders));
  of.doc_start = delta_pointer<std::int32_t>(a.doc_start);
  return {.of = of,
          .dout = a.dout.template as<T>(),
          .dxbc = a.dxbc.template as<T>(),
          .dstep = a.dstep.template as<float>(),
          .dg = a.dg.template as<float>(),
          .keys = of.workspace + space.slots,
          .dots = of.workspace + space.slots + space.keys,
          .border_floats = borders};
}
template <class T, class Args>
ScanCachedOperands<T> scan_cached_operands(const Args& a) {
  return {scan_operands<T>(a, a.heads.blocks(), scan_slot_floats<ScanScratch>(a.heads, 0)),
          {a.positions.template as<std::int32_t>(), a.slots.template as<std::int32_t>(),
           dispatch::row_count(a.xbc)},
          a.state.template as<float>(),
          a.out.template as<T>()};
}

}  // namespace strata::kernels::detail
