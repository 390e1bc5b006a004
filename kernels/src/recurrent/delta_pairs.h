#pragma once

#include "recurrent/delta_sequences.h"

/// The ops of the delta rule as pairs of a sequence and a key head, for a Unit (delta_rows.h). Pairs share
/// slots of memory, of which there are as many as shapes say.
namespace strata::kernels::detail {

constexpr std::int64_t delta_slots(std::int64_t pairs) noexcept { return pairs < 32 ? pairs : 32; }

template <class T>
struct DeltaOperands {
  DeltaHeads heads;
  DeltaSizes d;
  std::int64_t pairs;
  const T* qkv;
  const float *g, *beta;
  const std::int32_t* doc_start;
  float* workspace;
  std::int64_t slot_floats;

  STRATA_HD std::int64_t sequence(std::int64_t pair) const { return pair / heads.key_heads; }
  STRATA_HD std::int64_t key_head(std::int64_t pair) const { return pair % heads.key_heads; }
  /// The first value head of a pair, and the first of its values in a row of `out`.
  STRATA_HD std::int64_t head(std::int64_t pair) const { return key_head(pair) * d.group; }
  STRATA_HD std::int64_t width() const {
    return 2 * std::int64_t{heads.key_heads} * d.dk + std::int64_t{heads.value_heads} * d.dv;
  }
  STRATA_HD std::int64_t out_width() const { return std::int64_t{heads.value_heads} * d.dv; }
  STRATA_HD std::int64_t out(std::int64_t pair) const {
    return sequence(pair) * heads.seq * out_width() + head(pair) * d.dv;
  }
  /// Where q, k and v of a pair begin in qkv, and where its gates do.
  STRATA_HD std::int64_t q(std::int64_t pair) const {
    return sequence(pair) * heads.seq * width() + key_head(pair) * d.dk;
  }
  STRATA_HD std::int64_t k(std::int64_t pair) const { return q(pair) + heads.key_heads * d.dk; }
  STRATA_HD std::int64_t v(std::int64_t pair) const {
    return sequence(pair) * heads.seq * width() + 2 * heads.key_heads * d.dk + head(pair) * d.dv;
  }
  STRATA_HD std::int64_t gate(std::int64_t pair) const {
    return sequence(pair) * heads.seq * heads.value_heads + head(pair);
  }
  STRATA_HD DeltaRows<T> rows(std::int64_t pair) const {
    return {qkv + q(pair),  qkv + k(pair),     qkv + v(pair),    width(),
            g + gate(pair), beta + gate(pair), heads.value_heads};
  }
  STRATA_HD DeltaChunks chunks(std::int64_t pair) const {
    return {doc_start == nullptr ? nullptr : doc_start + sequence(pair) * heads.seq, heads.seq};
  }
};

/// A slot's memory: the scratch of type S, a window, and `more` floats.
template <class S>
struct DeltaSlot {
  S scratch;
  DeltaWindow window;
  float* more;

  STRATA_HD DeltaSlot(DeltaMemory& memory, const DeltaSizes& d, std::int64_t n)
      : scratch(memory, d),
        window{memory.take(DeltaWindow::floats(d.dk, d.dv, d.group)), d.dk, d.dv},
        more(memory.take(n)) {}
};

template <class T>
struct DeltaForwardOperands {
  DeltaOperands<T> of;
  T* out;
  const float* initial;  // may be null, and `last`, too
  float* last;
};
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_forward_slot(const Unit& unit, const DeltaForwardOperands<T>& a,
                                             std::int64_t at, std::int64_t slots) {
  const DeltaSizes& d = a.of.d;
  DeltaMemory memory(a.of.workspace + at * a.of.slot_floats);
  const DeltaSlot<DeltaScratch> slot(memory, d, 0);
  for (std::int64_t pair = at; pair < a.of.pairs; pair += slots) {
    const std::int64_t floats = d.dk * d.dv,
                       states = (a.of.sequence(pair) * a.of.heads.value_heads + a.of.head(pair)) * floats;
    if (a.initial != nullptr)
      unit.rows(d.group, [&](std::int64_t i, const auto& lanes) {
        const float* const from = a.initial + states + i * floats;
        float* const into = slot.window.state(i);
        lanes.for_each(floats, [&](std::int64_t j) { into[j] = from[j]; });
      });
    delta_forward_sequence(unit, d, a.of.rows(pair), slot.scratch, slot.window, a.of.chunks(pair),
                           a.initial != nullptr, a.last != nullptr, a.out + a.of.out(pair), a.of.out_width());
    if (a.last != nullptr)
      unit.rows(d.group, [&](std::int64_t i, const auto& lanes) {
        const float* const from = slot.window.state(i);
        float* const into = a.last + states + i * floats;
        lanes.for_each(floats, [&](std::int64_t j) { into[j] = from[j]; });
      });
  }
}

template <class T>
struct DeltaBackwardOperands {
  DeltaOperands<T> of;
  const T* dout;
  T* dqkv;
  float *dg, *dbeta;
  std::int64_t border_floats;
};
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_backward_slot(const Unit& unit, const DeltaBackwardOperands<T>& a,
                                              std::int64_t at, std::int64_t slots) {
  const DeltaSizes& d = a.of.d;
  DeltaMemory memory(a.of.workspace + at * a.of.slot_floats);
  const DeltaSlot<DeltaBackwardScratch> slot(memory, d, a.border_floats);
  for (std::int64_t pair = at; pair < a.of.pairs; pair += slots) {
    const DeltaGradients<T> to = {a.dqkv + a.of.q(pair), a.dqkv + a.of.k(pair),  a.dqkv + a.of.v(pair),
                                  a.of.width(),          a.dg + a.of.gate(pair), a.dbeta + a.of.gate(pair),
                                  a.of.heads.value_heads};
    delta_backward_sequence(unit, d, a.of.rows(pair), to, a.dout + a.of.out(pair), a.of.out_width(),
                            slot.scratch, slot.window, a.of.chunks(pair), slot.more);
  }
}

template <class T>
struct DeltaCachedOperands {
  DeltaOperands<T> of;
  CachedRows rows;
  float* state;
  T* out;
};
template <class Unit, class T>
STRATA_DEVICE_INLINE void delta_cached_slot(const Unit& unit, const DeltaCachedOperands<T>& a,
                                            std::int64_t at, std::int64_t slots) {
  const DeltaSizes& d = a.of.d;
  DeltaMemory memory(a.of.workspace + at * a.of.slot_floats);
  const DeltaSlot<DeltaScratch> slot(memory, d, 0);
  const std::int64_t floats = DeltaWindow::floats(d.dk, d.dv, d.group);
  for (std::int64_t pair = at; pair < a.of.pairs; pair += slots)
    delta_cached_rows(unit, d, a.of.rows(pair), slot.scratch, a.rows, a.state + pair * floats,
                      a.of.heads.key_heads * floats, a.out + a.of.out(pair), a.of.out_width());
}

}  // namespace strata::kernels::detail
