#include <algorithm>
#include <map>
#include <set>

#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr const char* kRowAdapters = "adapters";

/// One group of an adapter, while the program is copied.
struct RowAdapter {
  ValueId a = kNoValue, b = kNoValue;  // the parameters
  LoraRowsAttrs attrs;
};

const ParamInfo* param_named(const Program& program, const std::string& name) {
  const auto found = std::find_if(program.params.begin(), program.params.end(),
                                  [&](const ParamInfo& info) { return info.name == name; });
  return found == program.params.end() ? nullptr : &*found;
}

// Of a linear layer, an adapter can change the result of those rows that are tokens.
std::string problems_of_group(const Program& program, const LoraGroup& group, std::int64_t rows) {
  const ParamInfo* const param = param_named(program, group.weight);
  if (param == nullptr) return str("\n  ", group.weight, " is no parameter");
  std::int64_t readers = 0;
  std::string problems;
  for (const Instr& instr : program.code) {
    if (instr.op != Op::linear || instr.in[1] != param->value) continue;
    ++readers;
    if (const std::int64_t n = program.value(instr.in[0]).shape.dim(0); n != rows)
      problems +=
          str("\n  ", group.weight, " is multiplied with ", n, " rows; the program has ", rows, " tokens");
  }
  if (readers == 0 || param->shape.rank != 2)
    return str("\n  ", group.weight, " ", to_string(param->shape), " is not the matrix of a linear layer");
  for (const LoraPart& part : group.parts.all()) {
    const std::int64_t largest = std::min(part.rows, param->shape.dim(1));
    if (part.rank < 1 || part.rank > largest)
      problems += str("\n  ", group.weight, ", rows ", part.first_row, " to ", part.first_row + part.rows,
                      ": the rank is ", part.rank, "; it must be from 1 to ", largest);
  }
  return problems;
}

Status check_row_adapters(const Program& program, std::span<const NamedLora> adapters, std::int64_t rows) {
  std::string problems;
  std::set<std::string> names;
  for (const NamedLora& adapter : adapters) {
    std::string found;
    if (!names.insert(adapter.name).second) found += "\n  the name is taken by another adapter";
    for (const LoraGroup& group : adapter.groups) found += problems_of_group(program, group, rows);
    if (!found.empty()) problems += str("\n adapter ", adapter.name, ":", found);
  }
  return problems.empty() ? Status::ok()
                          : Status::error(Code::invalid, str("adapters cannot be added:", problems));
}

ValueId add_frozen_param(Program& program, std::string name, const Shape& shape, DType dtype) {
  const ValueId value = program.add_value(
      {name, shape, dtype, ValueKind::param, static_cast<std::int32_t>(program.params.size())});
  program.params.push_back(
      {.name = std::move(name), .shape = shape, .trainable = false, .init = {}, .value = value});
  return value;
}

ValueId append_rows(Program& program, const Instr& of, std::vector<ValueId> in, const LoraRowsAttrs& attrs) {
  Instr instr{.op = Op::lora_rows, .in = std::move(in), .out = {}, .attrs = attrs, .region = of.region};
  const std::string prefix = str(program.value(of.out[0]).name, ".lora_rows", attrs.adapter);
  for (const OutputSpec& spec : must(infer_outputs(program, instr)))
    instr.out.push_back(add_output(program, prefix, spec));
  program.code.push_back(std::move(instr));
  return program.code.back().out[0];
}

}  // namespace

Result<Program> add_lora_rows(Program program, std::span<const NamedLora> adapters, std::int64_t rows) {
  STRATA_TRY(check_row_adapters(program, adapters, rows));
  if (adapters.empty()) return program;
  std::multimap<ValueId, RowAdapter> of_weight;
  for (std::size_t k = 0; k < adapters.size(); ++k)
    for (const LoraGroup& group : adapters[k].groups) {
      const ParamInfo base = *param_named(program, group.weight);
      const DType dtype = program.value(base.value).dtype;
      const std::string suffix = str(kAdapterMark, adapters[k].name);
      const ValueId a =
          add_frozen_param(program, group.a + suffix, {group.ranks(), base.shape.dim(1)}, dtype);
      const ValueId b = add_frozen_param(program, group.b + suffix, {group.elems()}, dtype);
      of_weight.emplace(base.value,
                        RowAdapter{a, b, {group.parts, group.scale, static_cast<std::int32_t>(k)}});
    }
  const ValueId numbers = program.add_value({kRowAdapters, {rows}, DType::i32, ValueKind::input, -1});
  program.inputs.push_back(numbers);
  std::vector<Instr> code;
  code.swap(program.code);
  std::map<ValueId, ValueId> now;  // what the readers of a linear layer's result read
  const auto current = [&](ValueId id) {
    const auto found = now.find(id);
    return found == now.end() ? id : found->second;
  };
  for (Instr& instr : code) {
    for (ValueId& id : instr.in) id = current(id);
    program.code.push_back(std::move(instr));
    const Instr done = program.code.back();
    if (done.op != Op::linear) continue;
    const auto [first, last] = of_weight.equal_range(done.in[1]);
    for (auto it = first; it != last; ++it)
      now[done.out[0]] =
          append_rows(program, done, {current(done.out[0]), done.in[0], it->second.a, it->second.b, numbers},
                      it->second.attrs);
  }
  for (ValueId& id : program.outputs) id = current(id);
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
