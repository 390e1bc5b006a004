#pragma once

#include "recurrent/delta_sequences.h"

/// The ops of the delta rule as pairs of a sequence and a key head, for a Unit (delta_rows.h). Pairs share
/// slots of memory, of which there are as many as shapes say. The functions of a slot are those of the state
/// scan, too (scan_pairs.h).
namespace strata::kernels::detail {

constexpr std::int64_t delta_slots(std::int64_t pairs) noexcept { return pairs < 32 ? pairs : 32; }

template <class T>
struct DeltaOperands {
  using Scratch = DeltaScratch;
  using BackwardScratch = DeltaBackwardScratch;

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
  STRATA_HD std::int64_t n_heads() const { return heads.value_heads; }
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
template <class Unit, class Operands>
STRATA_DEVICE_INLINE void forward_slot(const Unit& unit, const Operands& a, std::int64_t at,
                                       std::int64_t slots) {
  const DeltaSizes& d = a.of.d;
  DeltaMemory memory(a.of.workspace + at * a.of.slot_floats);
  const DeltaSlot<typename decltype(a.of)::Scratch> slot(memory, d, 0);
  for (std::int64_t pair = at; pair < a.of.pairs; pair += slots) {
    const std::int64_t floats = d.dk * d.dv,
                       states = (a.of.sequence(pair) * a.of.n_heads() + a.of.head(pair)) * floats;
    if (a.initial != nullptr)
      for (std::int64_t i = 0; i < d.group; ++i)
        copy_matrix(unit, a.initial + states + i * floats, slot.window.state(i), d.dk, d.dv);
    forward_sequence(unit, d, a.of.rows(pair), slot.scratch, slot.window, a.of.chunks(pair),
                     a.initial != nullptr, a.last != nullptr, a.out + a.of.out(pair), a.of.out_width());
    if (a.last != nullptr)
      for (std::int64_t i = 0; i < d.group; ++i)
        copy_matrix(unit, slot.window.state(i), a.last + states + i * floats, d.dk, d.dv);
  }
}

template <class T>
struct DeltaBackwardOperands {
  DeltaOperands<T> of;
  const T* dout;
  T* dqkv;
  float *dg, *dbeta;
  std::int64_t border_floats;

  STRATA_HD DeltaGradients<T> to(std::int64_t pair) const {
    return {dqkv + of.q(pair),  dqkv + of.k(pair),     dqkv + of.v(pair),   of.width(),
            dg + of.gate(pair), dbeta + of.gate(pair), of.heads.value_heads};
  }
};
template <class Unit, class Operands>
STRATA_DEVICE_INLINE void backward_slot(const Unit& unit, const Operands& a, std::int64_t at,
                                        std::int64_t slots) {
  const DeltaSizes& d = a.of.d;
  DeltaMemory memory(a.of.workspace + at * a.of.slot_floats);
  const DeltaSlot<typename decltype(a.of)::BackwardScratch> slot(memory, d, a.border_floats);
  for (std::int64_t pair = at; pair < a.of.pairs; pair += slots)
    backward_sequence(unit, d, a.of.rows(pair), a.to(pair), a.dout + a.of.out(pair), a.of.out_width(),
                      slot.scratch, slot.window, a.of.chunks(pair), slot.more);
}

template <class T>
struct DeltaCachedOperands {
  DeltaOperands<T> of;
  CachedRows rows;
  float* state;
  T* out;
};
template <class Unit, class Operands>
STRATA_DEVICE_INLINE void cached_slot(const Unit& unit, const Operands& a, std::int64_t at,
                                      std::int64_t slots) {
  const DeltaSizes& d = a.of.d;
  DeltaMemory memory(a.of.workspace + at * a.of.slot_floats);
  const DeltaSlot<typename decltype(a.of)::Scratch> slot(memory, d, 0);
  const std::int64_t floats = DeltaWindow::floats(d.dk, d.dv, d.group);
  for (std::int64_t pair = at; pair < a.of.pairs; pair += slots)
    cached_rows(unit, d, a.of.rows(pair), slot.scratch, a.rows, a.state + pair * floats, a.of.pairs * floats,
                a.out + a.of.out(pair), a.of.out_width());
}

}  // namespace strata::kernels::detail
