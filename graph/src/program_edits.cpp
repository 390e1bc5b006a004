#include "program_edits.h"

#include <algorithm>
#include <cmath>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/runtime/str.h>

namespace strata::detail {

const ParamInfo* find_param(const Program& program, std::string_view name) noexcept {
  const auto found = std::find_if(program.params.begin(), program.params.end(),
                                  [&](const ParamInfo& info) { return info.name == name; });
  return found == program.params.end() ? nullptr : &*found;
}

bool is_linear_weight(const Program& program, const ParamInfo& param) noexcept {
  return param.shape.rank == 2 &&
         std::any_of(program.code.begin(), program.code.end(), [&](const Instr& instr) {
           return instr.op == Op::linear && instr.in[1] == param.value;
         });
}

namespace {

/// Whether the parameter is read where the adapter changes something; what reads it else.
bool is_read_in(const Program& program, const ParamInfo& param, LoraPlace place) {
  const auto reads = [&](Op op) {
    return std::any_of(program.code.begin(), program.code.end(),
                       [&](const Instr& instr) { return instr.op == op && instr.in[1] == param.value; });
  };
  if (place == LoraPlace::experts) return param.shape.rank == 3 && reads(Op::expert_linear);
  if (param.shape.rank != 2) return false;
  if (place == LoraPlace::embedding) return reads(Op::embedding);
  return reads(Op::linear) || (place == LoraPlace::head && reads(Op::linear_cross_entropy));
}

const char* to_text(LoraPlace place) {
  return place == LoraPlace::linear    ? "the matrix of a linear layer"
         : place == LoraPlace::head    ? "the head of a program of logits or their cross entropy"
         : place == LoraPlace::gate    ? "the matrix of a gate"
         : place == LoraPlace::experts ? "the matrices of experts"
                                       : "a table of embeddings";
}

}  // namespace

std::string problems_of_lora(const Program& program, const LoraGroup& group) {
  const ParamInfo* const param = find_param(program, group.weight);
  if (param == nullptr) return str("\n  ", group.weight, " is no parameter");
  if (!is_read_in(program, *param, group.place))
    return str("\n  ", group.weight, " ", to_string(param->shape), " is not ", to_text(group.place));
  std::string problems;
  if (group.has_basis() && !group.magnitude.empty())
    problems += str("\n  ", group.weight, ": DoRA trains both factors of an adapter");
  for (const LoraPart& part : group.parts.all()) {
    // A basis, and the start of PiSSA, have no more columns than the space; factors may have more, as in
    // PEFT.
    constexpr std::int64_t kLargestRank = 1 << 16;
    const bool is_limited = group.has_basis() || group.pissa.has_value();
    const std::int64_t largest = is_limited ? std::min(part.rows, param->shape.dim(1)) : kLargestRank;
    if (part.rank < 1 || part.rank > largest)
      problems += str("\n  ", group.weight, ", rows ", part.first_row, " to ", part.first_row + part.rows,
                      ": the rank is ", part.rank, "; it must be from 1 to ", largest);
  }
  return problems;
}

ValueId add_param(Program& program, const std::string& name, const Shape& shape, DType dtype,
                  const Init& init, bool decay) {
  const ValueId value = program.add_value(
      {name, shape, dtype, ValueKind::param, static_cast<std::int32_t>(program.params.size())});
  program.params.push_back({.name = name, .shape = shape, .decay = decay, .init = init, .value = value});
  return value;
}

ValueId append(Program& program, const Instr& of, Op op, std::vector<ValueId> in, const Attrs& attrs) {
  Instr instr{.op = op, .in = std::move(in), .out = {}, .attrs = attrs, .region = of.region};
  const std::string prefix = str(program.value(of.out[0]).name, ".", op_name(op));
  for (const OutputSpec& spec : must(infer_outputs(program, instr)))
    instr.out.push_back(add_output(program, prefix, spec));
  program.code.push_back(std::move(instr));
  return program.code.back().out[0];
}

Result<Instr> append_logits(Program& program, const Instr& fused, std::string_view what) {
  if (fused.attrs.as<LinearCrossEntropyAttrs>().softcap != 0)
    return Status::error(Code::unsupported,
                         str(what, ", the head: logits with a soft cap cannot be trained so"));
  append(program, fused, Op::linear, {fused.in[0], fused.in[1], kNoValue}, LinearAttrs{});
  return program.code.back();
}

void append_loss(Program& program, const Instr& fused, ValueId logits, Replacements& now) {
  now.replace(fused.out[0],
              append(program, fused, Op::cross_entropy, {logits, fused.in[2], fused.in[3]}, NoAttrs{}));
  now.replace(fused.out[1], program.code.back().out[1]);
}

void replace_outputs(Program& program, const Replacements& now) {
  const auto name = [&](ValueId id) -> std::string& {
    return program.values[static_cast<std::size_t>(id)].name;
  };
  for (ValueId& output : program.outputs) {
    const ValueId by = now.current(output);
    if (by != output) std::swap(name(by), name(output));
    output = by;
  }
}

Init linear_init(std::int64_t columns) {
  return {.std = 1 / std::sqrt(3.0f * static_cast<float>(columns)), .is_uniform = true};
}

}  // namespace strata::detail
