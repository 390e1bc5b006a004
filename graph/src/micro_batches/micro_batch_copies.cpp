#include "micro_batches/micro_batch_copies.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>

namespace strata::detail {

bool is_constant(const Instr& instr) noexcept {
  return std::all_of(instr.in.begin(), instr.in.end(), [](ValueId id) { return id == kNoValue; });
}

MicroBatchCopies::MicroBatchCopies(const Program& from, Program& to, std::int32_t micro_batches,
                                   std::span<const std::size_t> order)
    : from_(from), to_(to), sum_(from.values.size()), last_writer_(from.values.size()) {
  to_.micro_batches = micro_batches;
  std::iota(sum_.begin(), sum_.end(), 0);
  for (const std::size_t i : order)
    for (const ValueId id : from_.code[i].out)
      if (is_gradient(id)) last_writer_[at(id)] = i;
  for (std::int32_t k = 0; k < micro_batches; ++k) {
    copy_.push_back(clone_values(k));
    micro_batch_grads_.emplace_back(from_.values.size(), kNoValue);
  }
  if (micro_batches > 1) sum_in_f32();
}

// A gradient is the sum of several micro-batches' gradients.
void MicroBatchCopies::sum_in_f32() {
  for (ValueInfo& value : to_.values)
    if (value.kind == ValueKind::grad) value.dtype = DType::f32;
}

std::vector<ValueId> MicroBatchCopies::clone_values(std::int32_t k) {
  std::vector<ValueId> names(from_.values.size());
  std::vector<bool> shared(from_.values.size(), k == 0);
  for (const Instr& instr : from_.code)
    if (is_constant(instr))
      for (const ValueId id : instr.out) shared[at(id)] = true;
  for (std::size_t v = 0; v < from_.values.size(); ++v) {
    const ValueInfo& info = from_.values[v];
    names[v] = static_cast<ValueId>(v);
    if (shared[v] || info.kind == ValueKind::param || info.kind == ValueKind::grad) continue;
    ValueInfo copy = info;
    copy.name = name_in_micro_batch(info.name, k);
    names[v] = to_.add_value(std::move(copy));
  }
  if (k > 0) {
    for (const ValueId id : from_.inputs) to_.inputs.push_back(names[at(id)]);
    for (const ValueId id : from_.outputs) to_.outputs.push_back(names[at(id)]);
  }
  return names;
}

void MicroBatchCopies::add_up_in(ValueId grad, ValueId sum) { sum_[at(grad)] = sum; }

void MicroBatchCopies::add_up_over(const CollectiveAttrs& ranks) {
  over_ranks_ = ranks;
  sum_in_f32();
}

void MicroBatchCopies::add(std::size_t i, std::int32_t k) {
  Instr instr = from_.code[i];
  std::vector<Instr> sums;
  for (ValueId& id : instr.in) id = of(id, k);
  for (std::size_t o = 0; o < instr.out.size(); ++o) {
    ValueId& id = instr.out[o];
    if (!is_gradient(id)) {
      id = of(id, k);
      continue;
    }
    const ValueId grad = id, sum = sum_[at(id)];
    id = to_.micro_batches == 1 && !over_ranks_ ? sum : micro_batch_grad_of(grad, k);
    // The first part of a gradient may be in an instruction that is not copied.
    const std::uint32_t bit = 1u << o;
    instr.accumulate = written_.insert(id).second ? instr.accumulate & ~bit : instr.accumulate | bit;
    if (id != sum && last_writer_[at(grad)] == i)
      sums.push_back({over_ranks_ ? Op::accumulate_over_ranks : Op::accumulate,
                      {id},
                      {sum},
                      over_ranks_ ? Attrs(*over_ranks_) : Attrs(),
                      k > 0 ? 1u : 0u,
                      instr.region,
                      true});
  }
  to_.code.push_back(std::move(instr));
  for (Instr& sum : sums) to_.code.push_back(std::move(sum));
}

ValueId MicroBatchCopies::micro_batch_grad_of(ValueId grad, std::int32_t k) {
  ValueId& part = micro_batch_grads_[static_cast<std::size_t>(k)][at(grad)];
  if (part != kNoValue) return part;
  ValueInfo info = from_.value(grad);
  info.name = name_in_micro_batch("micro-batch " + info.name, k);
  info.kind = ValueKind::micro_batch_grad;
  return part = to_.add_value(std::move(info));
}

}  // namespace strata::detail
