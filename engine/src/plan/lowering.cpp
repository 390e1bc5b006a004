#include <strata/engine/lowering.h>

#include <algorithm>
#include <map>

#include <strata/graph/ops.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {

Operand LoweredProgram::find(std::string_view name, std::int32_t micro_batch) const {
  for (const Binding& end : bindings)
    if (end.micro_batch == micro_batch && end.name == name) return end.operand;
  return {};
}

LoweredProgram::PassFlops LoweredProgram::pass_flops() const noexcept {
  PassFlops flops;
  bool in_backward = false;
  for (const LoweredInstr& instr : code) {
    in_backward = in_backward || !instr.grads.empty();
    (in_backward ? flops.backward : flops.forward) += instr.flops;
  }
  return flops;
}

TensorTable tensors_in_use_order(const Program& program) {
  TensorTable table;
  table.tensor_of_param.assign(program.params.size(), -1);
  const auto add = [&](std::int32_t param) {
    if (table.tensor_of_param[static_cast<std::size_t>(param)] >= 0) return;
    const ParamInfo& info = program.params[static_cast<std::size_t>(param)];
    table.tensor_of_param[static_cast<std::size_t>(param)] = static_cast<std::int32_t>(table.specs.size());
    table.param_of_tensor.push_back(param);
    const DType compute = program.value(info.value).dtype;
    const DType grad = info.grad == kNoValue ? compute : program.value(info.grad).dtype;
    table.specs.push_back({info.name,
                           info.shape.n_elems(),
                           {.compute = compute, .grad = grad, .accum = grad, .trainable = info.trainable}});
  };
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.in)
      if (id != kNoValue && program.value(id).kind == ValueKind::param) add(program.value(id).param);
  for (std::size_t p = 0; p < program.params.size(); ++p) add(static_cast<std::int32_t>(p));
  return table;
}

namespace {

class Lowering {
 public:
  Lowering(const Program& program, const TensorTable& tensors, const ChunkLayout& layout,
           const MemoryPlan& memory)
      : program_(program), tensors_(tensors), layout_(layout), plan_(memory) {}

  LoweredProgram run() {
    LoweredProgram lowered;
    lowered.micro_batches = program_.micro_batches;
    lowered.arena_bytes = plan_.arena_bytes;
    lowered.state_bytes = place_states();
    lowered.offload.host_bytes = plan_.host_bytes;
    for (const Instr& instr : program_.code) {
      lowered.code.push_back(lower(instr));
      if (is_move(instr.op)) count_move(instr, lowered.offload);
    }
    mark_grads(lowered);
    list_bindings(program_.inputs, true, lowered.bindings);
    list_bindings(program_.outputs, false, lowered.bindings);
    return lowered;
  }

 private:
  // Values are listed micro-batch by micro-batch; those of all micro-batches get the names of the first.
  void list_bindings(const std::vector<ValueId>& values, bool are_inputs,
                     std::vector<LoweredProgram::Binding>& bindings) const {
    const std::size_t n = values.size() / static_cast<std::size_t>(program_.micro_batches);
    for (std::size_t i = 0; i < values.size(); ++i)
      bindings.push_back({program_.value(values[i % n]).name, static_cast<std::int32_t>(i / n), are_inputs,
                          operand(values[i])});
  }

  void count_move(const Instr& instr, LoweredProgram::Offload& offload) {
    const ValueInfo& value = program_.value(instr.in[0]);
    if (instr.op == Op::offload_begin) {
      ++offload.n;
      offload.bytes += value.bytes();
      moved_[instr.attrs.as<MoveAttrs>().number] = instr.in[0];
    } else if (instr.op == Op::store_begin) {
      const std::int32_t move = instr.attrs.as<MoveAttrs>().number;
      offload.stored.push_back(
          {move, round_up(value.bytes(), MemoryPlan::kHostAlign), program_.value(moved_[move]).name});
    }
  }

  std::size_t place_states() {
    std::size_t end = 0;
    for (const ValueId id : program_.states) {
      state_offset_[id] = end;
      end = round_up(end + program_.value(id).bytes(), MemoryPlan::kAlign);
    }
    return round_up(end, std::size_t{4096});
  }

  Operand operand(ValueId id) const {
    if (id == kNoValue) return {};
    const ValueInfo& info = program_.value(id);
    if (info.kind == ValueKind::state)
      return {Operand::Location::state, state_offset_.at(id), 0, info.shape, info.dtype};
    if (info.kind == ValueKind::param || info.kind == ValueKind::grad) {
      const Slice& slice = layout_.slice(tensors_.tensor_of_param[static_cast<std::size_t>(info.param)]);
      const bool grad = info.kind == ValueKind::grad;
      return {grad ? Operand::Location::grad : Operand::Location::param,
              static_cast<std::size_t>(slice.offset) * size_of(info.dtype), slice.chunk, info.shape,
              info.dtype};
    }
    const std::size_t offset = plan_.offset[static_cast<std::size_t>(id)];
    if (offset == MemoryPlan::kUnplaced) return {};
    const bool on_host = info.kind == ValueKind::host;
    return {on_host ? Operand::Location::host : Operand::Location::arena, offset, 0, info.shape, info.dtype};
  }

  LoweredInstr lower(const Instr& instr) const {
    LoweredInstr out{instr.op, instr.attrs, instr.accumulate, {}, {}, {}, {}, 0};
    for (const ValueId id : instr.in) {
      out.in.push_back(operand(id));
      // A derivative may have a parameter as operand only for its shape.
      const bool reads_contents = op_def(instr.op).shape_only_in != static_cast<int>(out.in.size() - 1);
      if (out.in.back().location == Operand::Location::param && reads_contents &&
          std::find(out.params.begin(), out.params.end(), out.in.back().chunk) == out.params.end())
        out.params.push_back(out.in.back().chunk);
    }
    for (const ValueId id : instr.out) {
      out.out.push_back(operand(id));
      if (out.out.back().location == Operand::Location::grad &&
          std::none_of(out.grads.begin(), out.grads.end(),
                       [&](const GradWrite& g) { return g.chunk == out.out.back().chunk; }))
        out.grads.push_back({out.out.back().chunk, false, false});
    }
    out.flops = flops(program_, instr);
    return out;
  }

  void mark_grads(LoweredProgram& lowered) const {
    // The first and the last instruction that write the chunk's gradient.
    std::map<ChunkId, std::pair<std::size_t, std::size_t>> span;
    for (std::size_t i = 0; i < lowered.code.size(); ++i)
      for (const GradWrite& touch : lowered.code[i].grads) {
        const auto at = span.emplace(touch.chunk, std::pair{i, i}).first;
        at->second.second = i;
      }
    for (std::size_t i = 0; i < lowered.code.size(); ++i)
      for (GradWrite& touch : lowered.code[i].grads) {
        touch.first = span[touch.chunk].first == i;
        touch.last = span[touch.chunk].second == i;
      }
  }

  const Program& program_;
  const TensorTable& tensors_;
  const ChunkLayout& layout_;
  const MemoryPlan& plan_;
  std::map<ValueId, std::size_t> state_offset_;
  std::map<std::int32_t, ValueId> moved_;  // by move: the value that moves
};

}  // namespace

Result<LoweredProgram> lower(const Program& program, const TensorTable& tensors, const ChunkLayout& layout,
                             const MemoryPlan* memory) {
  if (program.params.size() != tensors.tensor_of_param.size())
    return Status::error(Code::invalid, str("the program has ", program.params.size(),
                                            " parameters, the layout has ", tensors.tensor_of_param.size()));
  for (std::size_t p = 0; p < program.params.size(); ++p) {
    const ParamInfo& param = program.params[p];
    const LayoutTensor& tensor = tensors.specs[static_cast<std::size_t>(tensors.tensor_of_param[p])];
    if (param.name != tensor.name || param.shape.n_elems() != tensor.n_elems)
      return Status::error(Code::invalid, str("parameter ", p, " of the program is ", param.name, " of ",
                                              param.shape.n_elems(), " elements, the layout has ",
                                              tensor.name, " of ", tensor.n_elems));
    if (program.value(param.value).dtype != tensor.group.compute)
      return Status::error(Code::invalid, str("parameter ", param.name, " of the program is ",
                                              to_string(program.value(param.value).dtype),
                                              ", the layout has ", to_string(tensor.group.compute)));
  }
  if (memory != nullptr) {
    STRATA_ASSERT(memory->offset.size() == program.values.size(),
                  "the memory plan belongs to another program");
    return Lowering(program, tensors, layout, *memory).run();
  }
  const MemoryPlan own = plan_memory(program);
  return Lowering(program, tensors, layout, own).run();
}

AccessTrace access_trace(const LoweredProgram& program, std::int32_t passes) {
  AccessTrace trace;
  trace.micro_batches = passes;
  trace.device_fixed_bytes = program.arena_bytes;
  std::vector<ChunkId> open;
  for (const LoweredInstr& instr : program.code) {
    AccessTrace::Access step;
    step.flops = instr.flops;
    for (const GradWrite& touch : instr.grads)
      if (touch.first) open.push_back(touch.chunk);
    for (const ChunkId chunk : instr.params) step.on_device.push_back({chunk, Payload::param});
    for (const ChunkId chunk : open) step.on_device.push_back({chunk, Payload::grad});
    for (const GradWrite& touch : instr.grads)
      if (touch.last) open.erase(std::find(open.begin(), open.end(), touch.chunk));
    trace.accesses.push_back(std::move(step));
  }
  return trace;
}

}  // namespace strata
