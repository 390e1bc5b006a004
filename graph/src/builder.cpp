#include <strata/graph/builder.h>

#include <algorithm>

#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

// The functions that record one op are defined beside the op, in src/ops.

namespace strata {

Value Builder::param(std::string name, Shape shape, const ParamOptions& options) {
  if (!error_.is_ok()) return {};
  for (const ParamInfo& other : program_.params)
    if (other.name == name) {
      error_ = Status::error(Code::invalid, str("parameter ", name, " is declared twice"));
      return {};
    }
  if (shape.n_elems() <= 0) {
    error_ = Status::error(Code::invalid,
                           str("parameter ", name, " has no elements: its shape is ", to_string(shape)));
    return {};
  }
  const auto index = static_cast<std::int32_t>(program_.params.size());
  const DType dtype = options.is_f32_state || options.is_f32 ? DType::f32 : compute_;
  const ValueId id = program_.add_value({name, shape, dtype, ValueKind::param, index});
  program_.params.push_back({.name = std::move(name),
                             .shape = shape,
                             .trainable = options.trainable && !options.is_f32_state,
                             .decay = options.decay,
                             .derived = options.is_f32_state,
                             .init = options.init,
                             .value = id});
  return {id};
}

Value Builder::input(std::string name, Shape shape, DType dtype) {
  if (!error_.is_ok()) return {};
  if (shape.n_elems() <= 0 || program_.find(name) != kNoValue) {
    error_ = Status::error(
        Code::invalid, str("input ", name, " of shape ", to_string(shape), " is empty or declared twice"));
    return {};
  }
  const ValueId id = program_.add_value({std::move(name), shape, dtype, ValueKind::input, -1});
  program_.inputs.push_back(id);
  return {id};
}

Value Builder::state(std::string name, Shape shape, DType dtype) {
  if (!error_.is_ok()) return {};
  if (shape.n_elems() <= 0 || program_.find(name) != kNoValue) {
    error_ = Status::error(
        Code::invalid, str("state ", name, " of shape ", to_string(shape), " is empty or declared twice"));
    return {};
  }
  const ValueId id = program_.add_value({std::move(name), shape, dtype, ValueKind::state, -1});
  program_.states.push_back(id);
  return {id};
}

void Builder::region(std::string name, bool recompute) {
  program_.regions.push_back({std::move(name), recompute});
}

/// `invalid` if an operand that the op requires is absent.
static Status check_operands(const Instr& instr) {
  for (std::size_t k = 0; k < instr.in.size(); ++k)
    if (instr.in[k] == kNoValue && !op_def(instr.op).optional_in.contains(k))
      return Status::error(Code::invalid, str("operand ", k, " is absent"));
  return Status::ok();
}

Value Builder::op(Op op, std::initializer_list<Value> in, Attrs attrs) {
  if (!error_.is_ok()) return {};
  Instr instr;
  instr.op = op;
  instr.attrs = attrs;
  instr.region = static_cast<std::int32_t>(program_.regions.size() - 1);
  for (const Value value : in) instr.in.push_back(value.id);
  STRATA_ASSERT(instr.in.size() == static_cast<std::size_t>(op_def(op).n_in) && attrs.belong_to(op),
                "operands or attributes that ", op_name(op), " does not have");
  const std::string& where = program_.regions.back().name;
  const Status operands = check_operands(instr);
  const auto outputs = operands.is_ok() ? infer_outputs(program_, instr) : operands;
  if (!outputs.has_value()) {
    error_ = outputs.status().annotate(str(where, where.empty() ? "" : ".", op_name(op)));
    return {};
  }
  for (const OutputSpec& out : *outputs)
    instr.out.push_back(add_output(program_, str(where, ".", op_name(op)), out));
  const ValueId first = instr.out.front();
  program_.code.push_back(std::move(instr));
  return {first};
}

Value Builder::output(Value first, std::size_t i) const {
  for (auto instr = program_.code.rbegin(); first.id != kNoValue && instr != program_.code.rend(); ++instr)
    if (instr->out.front() == first.id) return {instr->out.at(i)};
  return {};
}

Result<Program> Builder::finish(std::span<const std::pair<std::string, Value>> outputs) {
  if (!error_.is_ok()) return error_;
  Program program = std::move(program_);
  program_ = Program{};
  for (const auto& [name, value] : outputs) {
    if (value.id == kNoValue) return Status::error(Code::invalid, str("output ", name, " is not a value"));
    if (program.value(value.id).kind != ValueKind::activation || program.find(name) != kNoValue ||
        std::find(program.outputs.begin(), program.outputs.end(), value.id) != program.outputs.end())
      return Status::error(
          Code::invalid,
          str("output ", name, " is not the result of an instruction, or its name or value is already used"));
    program.values[static_cast<std::size_t>(value.id)].name = name;
    program.outputs.push_back(value.id);
  }
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
