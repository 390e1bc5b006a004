#include <algorithm>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>

namespace strata {
namespace {

class MicroBatchInterleaver {
 public:
  MicroBatchInterleaver(const Program& program, std::int32_t micro_batches) : from_(program), to_(program) {
    to_.code.clear();
    to_.micro_batches = micro_batches;
    last_writer_.resize(from_.params.size());
    for (std::size_t i = 0; i < from_.code.size(); ++i)
      for (const ValueId id : from_.code[i].out)
        if (is_gradient(id)) last_writer_[param_of(id)] = i;
    for (std::int32_t k = 0; k < micro_batches; ++k) {
      copy_.push_back(clone_values(k));
      micro_batch_grads_.emplace_back(from_.params.size(), kNoValue);
    }
    for (ParamInfo& param : to_.params)
      // A gradient is the sum of several micro-batches' gradients.
      if (param.grad != kNoValue) to_.values[at(param.grad)].dtype = DType::f32;
  }

  Program run() && {
    for (std::size_t begin = 0; begin < from_.code.size();) {
      const std::size_t end = segment_end(begin);
      for (std::int32_t k = 0; k < to_.micro_batches; ++k)
        for (std::size_t i = begin; i < end; ++i)
          if (k == 0 || !is_constant(from_.code[i])) add(i, k);
      begin = end;
    }
    return std::move(to_);
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  bool is_gradient(ValueId id) const { return from_.value(id).kind == ValueKind::grad; }
  std::size_t param_of(ValueId id) const { return static_cast<std::size_t>(from_.value(id).param); }
  // Whether its result is the same in every micro-batch, like a RoPE table.
  static bool is_constant(const Instr& instr) {
    return std::all_of(instr.in.begin(), instr.in.end(), [](ValueId id) { return id == kNoValue; });
  }

  // Returns the end of the segment that begins there: the instructions of one region, forward or backward.
  std::size_t segment_end(std::size_t begin) const {
    const Instr& first = from_.code[begin];
    const auto end = std::find_if(
        from_.code.begin() + static_cast<std::ptrdiff_t>(begin), from_.code.end(),
        [&](const Instr& instr) { return instr.region != first.region || instr.backward != first.backward; });
    return static_cast<std::size_t>(end - from_.code.begin());
  }

  // Returns the values of micro-batch k, by value of the original program. Micro-batch 0 uses the original
  // values; parameters, gradients and constants are shared by all.
  std::vector<ValueId> clone_values(std::int32_t k) {
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

  void add(std::size_t i, std::int32_t k) {
    const auto batch = static_cast<std::size_t>(k);
    Instr instr = from_.code[i];
    std::vector<Instr> sums;
    for (ValueId& id : instr.in)
      if (id != kNoValue) id = copy_[batch][at(id)];
    for (ValueId& id : instr.out) {
      if (!is_gradient(id)) {
        id = copy_[batch][at(id)];
        continue;
      }
      const ValueId grad = id;
      id = micro_batch_grad_of(grad, k);
      if (last_writer_[param_of(grad)] == i)
        sums.push_back({Op::accumulate, {id}, {grad}, {}, k > 0 ? 1u : 0u, instr.region, true});
    }
    to_.code.push_back(std::move(instr));
    for (Instr& sum : sums) to_.code.push_back(std::move(sum));
  }

  ValueId micro_batch_grad_of(ValueId grad, std::int32_t k) {
    ValueId& part = micro_batch_grads_[static_cast<std::size_t>(k)][param_of(grad)];
    if (part != kNoValue) return part;
    ValueInfo info = from_.value(grad);
    info.name = name_in_micro_batch("micro-batch " + info.name, k);
    info.kind = ValueKind::micro_batch_grad;
    return part = to_.add_value(std::move(info));
  }

  const Program& from_;
  Program to_;
  std::vector<std::size_t> last_writer_;    // by parameter: the instruction that completes its gradient
  std::vector<std::vector<ValueId>> copy_;  // by micro-batch and value
  std::vector<std::vector<ValueId>> micro_batch_grads_;  // by micro-batch and parameter
};

}  // namespace

Program interleave_micro_batches(const Program& program, std::int32_t micro_batches) {
  return micro_batches <= 1 ? program : MicroBatchInterleaver(program, micro_batches).run();
}

}  // namespace strata
