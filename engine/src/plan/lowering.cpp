#include <strata/engine/lowering.h>

#include <algorithm>
#include <map>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "plan/collective_of.h"

namespace strata {

Operand LoweredProgram::find(std::string_view name, std::int32_t micro_batch) const {
  for (const Binding& end : bindings)
    if (end.micro_batch == micro_batch && end.name == name) return end.operand;
  return {};
}

namespace {

// The parameters of `program` in order of first use; unused ones come last.
std::vector<std::int32_t> params_in_use_order(const Program& program) {
  std::vector<std::int32_t> order;
  std::vector<bool> listed(program.params.size());
  const auto add = [&](std::int32_t param) {
    if (listed[static_cast<std::size_t>(param)]) return;
    listed[static_cast<std::size_t>(param)] = true;
    order.push_back(param);
  };
  for (const Instr& instr : program.code)
    for (const ValueId id : instr.in)
      if (id != kNoValue && program.value(id).kind == ValueKind::param) add(program.value(id).param);
  for (std::size_t p = 0; p < program.params.size(); ++p) add(static_cast<std::int32_t>(p));
  return order;
}

LayoutTensor layout_tensor(const Program& program, const ParamInfo& info, bool trainable) {
  const DType compute = program.value(info.value).dtype;
  const DType grad = info.grad == kNoValue ? compute : program.value(info.grad).dtype;
  return {info.name,
          info.shape.n_elems(),
          {.compute = compute,
           .grad = grad,
           .accum = grad,
           .trainable = trainable,
           .saved = trainable || info.derived},
          info.part.is_elsewhere,
          info.block_elems};
}

// Collects parameters by name.
class Union {
 public:
  /// `trainee`: whose parameters the program's trained ones are; below 0: none are trained.
  Status add(const NamedProgram& named, std::int32_t trainee) {
    const Program& program = named.program;
    std::vector<std::int32_t> tensor_of_param(program.params.size(), -1);
    for (const std::int32_t param : params_in_use_order(program)) {
      const auto p = static_cast<std::size_t>(param);
      STRATA_TRY_ASSIGN(tensor_of_param[p], tensor_of(named, program.params[p], trainee));
    }
    // New tensors are registered in the order in which the program declares them.
    for (const std::int32_t tensor : tensor_of_param) {
      auto& registered = result_.tensors.param_of_tensor[static_cast<std::size_t>(tensor)];
      if (registered >= 0) continue;
      registered = static_cast<std::int32_t>(result_.tensors.tensor_of_param.size());
      result_.tensors.tensor_of_param.push_back(tensor);
    }
    return {};
  }
  ParameterUnion take() && {
    std::vector<TensorPart>& parts = result_.tensors.parts;
    if (std::none_of(parts.begin(), parts.end(), [](const TensorPart& part) { return part.is_shared(); }))
      parts.clear();
    return std::move(result_);
  }

 private:
  Result<std::int32_t> tensor_of(const NamedProgram& named, const ParamInfo& info, std::int32_t trainee) {
    const bool trains = trainee >= 0 && info.trainable;
    TensorTable& tensors = result_.tensors;
    const auto next = static_cast<std::int32_t>(tensors.specs.size());
    const auto [known, is_new] = known_.try_emplace(info.name, Known{next, named.name});
    if (!is_new) {
      STRATA_TRY(check_equal(named, info, known->second));
      if (trains) STRATA_TRY(set_trained(named, info, trainee, known->second));
      return known->second.tensor;
    }
    tensors.specs.push_back(layout_tensor(named.program, info, trains));
    if (trains) tensors.specs.back().group.trainee = trainee;
    tensors.shapes.push_back(info.shape);
    tensors.decays.push_back(info.decay);
    tensors.parts.push_back(info.part);
    tensors.param_of_tensor.push_back(-1);
    const bool is_quantized = info.quantized.format != kernels::WeightFormat::full;
    tensors.params.push_back(is_quantized ? info.quantized.n_elems() : info.shape.n_elems());
    result_.inits.push_back(info.init);
    result_.quantized.push_back(info.quantized);
    return next;
  }

  struct Known {
    std::int32_t tensor = 0;
    std::string program;  // the first that has it
  };
  Status check_equal(const NamedProgram& named, const ParamInfo& info, const Known& known) const {
    const LayoutTensor& tensor = result_.tensors.specs[static_cast<std::size_t>(known.tensor)];
    const Shape& shape = result_.tensors.shapes[static_cast<std::size_t>(known.tensor)];
    if (info.shape != shape)
      return Status::error(Code::invalid,
                           str("parameter ", info.name, " is ", to_string(info.shape), " in program ",
                               named.name, " and ", to_string(shape), " in program ", known.program));
    if (info.part != result_.tensors.parts[static_cast<std::size_t>(known.tensor)])
      return Status::error(Code::invalid, str("parameter ", info.name,
                                              " has other elements of the model's parameter in program ",
                                              named.name, " than in program ", known.program));
    if (info.block_elems != tensor.block_elems)
      return Status::error(Code::invalid, str("parameter ", info.name, " has blocks of ", info.block_elems,
                                              " elements in program ", named.name, " and of ",
                                              tensor.block_elems, " in program ", known.program));
    const DType dtype = named.program.value(info.value).dtype;
    if (dtype != tensor.group.compute)
      return Status::error(Code::invalid,
                           str("parameter ", info.name, " is ", to_string(dtype), " in program ", named.name,
                               " and ", to_string(tensor.group.compute), " in program ", known.program));
    return {};
  }

  // An earlier program has the parameter, and may train it, too.
  Status set_trained(const NamedProgram& named, const ParamInfo& info, std::int32_t trainee,
                     const Known& known) {
    GroupKey& group = result_.tensors.specs[static_cast<std::size_t>(known.tensor)].group;
    GroupKey own = layout_tensor(named.program, info, true).group;
    own.trainee = trainee;
    if (group.trainable && own.grad != group.grad)
      return Status::error(Code::invalid, str("the gradient of parameter ", info.name, " is ",
                                              to_string(own.grad), " in program ", named.name, " and ",
                                              to_string(group.grad), " in program ", known.program));
    group = own;
    return {};
  }

  ParameterUnion result_;
  std::map<std::string, Known, std::less<>> known_;
};

// The number of a program's trainee, in the order in which the programs name them; -1 if it does not train.
std::int32_t trainee_of(const NamedProgram& program, std::vector<std::string>& trainees) {
  if (program.role != ProgramRole::train) return -1;
  const auto found = std::find(trainees.begin(), trainees.end(), program.trainee);
  const auto number = static_cast<std::int32_t>(found - trainees.begin());
  if (found == trainees.end()) trainees.push_back(program.trainee);
  return number;
}

}  // namespace

Result<ParameterUnion> unite_parameters(std::span<const NamedProgram* const> programs) {
  Union all;
  std::vector<std::string> trainees;
  const bool trains = !programs.empty() && programs.front()->role == ProgramRole::train;
  for (const NamedProgram* program : programs)
    STRATA_TRY(all.add(*program, trains ? trainee_of(*program, trainees) : 0));
  return std::move(all).take();
}

namespace {

class Lowering {
 public:
  Lowering(const Program& program, const TensorTable& tensors, const ChunkLayout& layout,
           const MemoryPlan& memory)
      : program_(program), layout_(layout), plan_(memory), tensor_of_param_(tensors_of(program, tensors)) {}

  LoweredProgram run() {
    LoweredProgram lowered;
    lowered.micro_batches = program_.micro_batches;
    lowered.arena_bytes = plan_.arena_bytes;
    lowered.state_bytes = place_states();
    lowered.offload.host_bytes = plan_.host_bytes;
    for (const Instr& instr : program_.code) {
      lowered.code.push_back(lower(instr));
      lowered.uses.positions.push_back(uses(instr, lowered.code.back()));
      if (is_move(instr.op)) count_move(instr, lowered.offload);
    }
    lowered.uses.mark_first_and_last_writes();
    list_bindings(program_.inputs, true, lowered);
    list_bindings(program_.outputs, false, lowered);
    list_results(lowered);
    return lowered;
  }

 private:
  static std::vector<std::int32_t> tensors_of(const Program& program, const TensorTable& tensors) {
    std::map<std::string_view, std::int32_t> known;
    for (std::size_t t = 0; t < tensors.specs.size(); ++t)
      known.emplace(tensors.specs[t].name, static_cast<std::int32_t>(t));
    std::vector<std::int32_t> tensor_of_param;
    for (const ParamInfo& param : program.params) {
      const auto found = known.find(param.name);
      STRATA_ASSERT(found != known.end(), "parameter ", param.name, " is not in the table of tensors");
      tensor_of_param.push_back(found->second);
    }
    return tensor_of_param;
  }

  // Values are listed micro-batch by micro-batch; those of all micro-batches get the names of the first.
  void list_bindings(const std::vector<ValueId>& values, bool are_inputs, LoweredProgram& lowered) const {
    const std::size_t n = values.size() / static_cast<std::size_t>(program_.micro_batches);
    for (std::size_t i = 0; i < values.size(); ++i) {
      lowered.bindings.push_back({program_.value(values[i % n]).name, static_cast<std::int32_t>(i / n),
                                  are_inputs, operand(values[i])});
      LoweredProgram::Binding& binding = lowered.bindings.back();
      const bool is_read_apart = binding.name == "loss" || binding.name == "logits";
      if (!are_inputs && is_read_apart) continue;
      std::size_t& end = are_inputs ? lowered.input_bytes : lowered.output_bytes;
      binding.slot_offset = end;
      end += binding.operand.bytes();
    }
  }

  void list_results(LoweredProgram& lowered) const {
    if (program_.results.empty()) return;
    for (std::size_t i = 0; i < program_.code.size(); ++i)
      for (const ValueId id : program_.code[i].out)
        if (std::find(program_.results.begin(), program_.results.end(), id) != program_.results.end())
          list_result({program_.value(id).name, i, operand(id)}, lowered);
  }

  static void list_result(LoweredProgram::ResultValue result, LoweredProgram& lowered) {
    result.host_offset = lowered.result_bytes;
    lowered.result_bytes += round_up(result.operand.bytes(), kPageBytes);
    lowered.results.push_back(std::move(result));
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
    return round_up(end, kPageBytes);
  }

  Operand operand(ValueId id) const {
    if (id == kNoValue) return {};
    const ValueInfo& info = program_.value(id);
    if (info.kind == ValueKind::state)
      return {Operand::Location::state, state_offset_.at(id), 0, info.shape, info.dtype};
    if (info.kind == ValueKind::param || info.kind == ValueKind::grad) {
      const Slice& slice = layout_.slice(tensor_of_param_[static_cast<std::size_t>(info.param)], info.first);
      const std::int64_t n = info.shape.n_elems();
      STRATA_ASSERT(info.first + n <= slice.end(), info.name, " is in more than one chunk");
      const bool grad = info.kind == ValueKind::grad;
      return {grad ? Operand::Location::grad : Operand::Location::param,
              static_cast<std::size_t>(slice.offset + info.first - slice.first) * size_of(info.dtype),
              slice.chunk, info.shape, info.dtype};
    }
    const std::size_t offset = plan_.offset[static_cast<std::size_t>(id)];
    if (offset == MemoryPlan::kUnplaced) return {};
    const bool on_host = info.kind == ValueKind::host;
    return {on_host ? Operand::Location::host : Operand::Location::arena, offset, 0, info.shape, info.dtype};
  }

  LoweredInstr lower(const Instr& instr) const {
    LoweredInstr out{instr.op, instr.attrs, instr.accumulate, {}, {}};
    for (const ValueId id : instr.in) out.in.push_back(operand(id));
    for (const ValueId id : instr.out) out.out.push_back(operand(id));
    return out;
  }

  UseTrace::Position uses(const Instr& instr, const LoweredInstr& lowered) const {
    UseTrace::Position position;
    for (std::size_t i = 0; i < lowered.in.size(); ++i) {
      // A derivative may have a parameter as operand only for its shape.
      const Operand& operand = lowered.in[i];
      if (operand.location == Operand::Location::param &&
          op_def(instr.op).shape_only_in != static_cast<int>(i) &&
          std::find(position.params.begin(), position.params.end(), operand.chunk) == position.params.end())
        position.params.push_back(operand.chunk);
    }
    // A gradient that is read, once it is complete, is not handed over before.
    for (const auto* operands : {&lowered.in, &lowered.out})
      for (const Operand& operand : *operands)
        if (operand.location == Operand::Location::grad &&
            std::none_of(position.grads.begin(), position.grads.end(),
                         [&](const GradWrite& g) { return g.chunk == operand.chunk; }))
          position.grads.push_back({operand.chunk, false, false});
    position.flops = flops(program_, instr);
    if (is_collective(instr.op)) {
      const auto view = [](const Operand& operand) {
        return TensorView{nullptr, operand.shape, operand.dtype};
      };
      std::uint64_t& bytes =
          instr.op == Op::accumulate_over_ranks ? position.summed_bytes : position.sent_bytes;
      bytes = detail::sent_bytes(instr.op, instr.attrs.as<CollectiveAttrs>(), view(lowered.in[0]),
                                 view(lowered.out[0]));
    }
    if (instr.op == Op::send_begin) position.sent_bytes = lowered.in[0].bytes();
    return position;
  }

  const Program& program_;
  const ChunkLayout& layout_;
  const MemoryPlan& plan_;
  const std::vector<std::int32_t> tensor_of_param_;
  std::map<ValueId, std::size_t> state_offset_;
  std::map<std::int32_t, ValueId> moved_;  // the value that each move moves
};

}  // namespace

LoweredProgram lower(const Program& program, const TensorTable& tensors, const ChunkLayout& layout,
                     const MemoryPlan* memory) {
  if (memory == nullptr) {
    const MemoryPlan own = plan_memory(program);
    return Lowering(program, tensors, layout, own).run();
  }
  STRATA_ASSERT(memory->offset.size() == program.values.size(), "the memory plan belongs to another program");
  return Lowering(program, tensors, layout, *memory).run();
}

}  // namespace strata
