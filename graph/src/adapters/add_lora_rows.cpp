#include <algorithm>
#include <map>
#include <set>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/str.h>

#include "program_edits.h"

namespace strata {
namespace {

constexpr const char* kRowAdapters = "adapters";

/// One group of an adapter, while the program is copied.
struct RowAdapter {
  ValueId a = kNoValue, b = kNoValue;  // the parameters
  LoraRowsAttrs attrs;
};

// An adapter can change the result of a linear layer only if the layer's rows are tokens.
std::string problems_of_group(const Program& program, const LoraGroup& group, std::int64_t rows) {
  std::string problems = detail::problems_of_lora(program, group);
  if (!problems.empty()) return problems;
  const ParamInfo* const param = detail::find_param(program, group.weight);
  for (const Instr& instr : program.code) {
    if (instr.op != Op::linear || instr.in[1] != param->value) continue;
    if (const std::int64_t n = program.value(instr.in[0]).shape.dim(0); n != rows)
      problems +=
          str("\n  ", group.weight, " is multiplied with ", n, " rows; the program has ", rows, " tokens");
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

}  // namespace

Result<Program> add_lora_rows(Program program, std::span<const NamedLora> adapters, std::int64_t rows) {
  STRATA_TRY(check_row_adapters(program, adapters, rows));
  if (adapters.empty()) return program;
  const std::size_t n_params = program.params.size();
  std::multimap<ValueId, RowAdapter> of_weight;
  for (std::size_t k = 0; k < adapters.size(); ++k)
    for (const LoraGroup& group : adapters[k].groups) {
      const ParamInfo base = *detail::find_param(program, group.weight);
      const DType dtype = program.value(base.value).dtype;
      const std::string suffix = str(kAdapterMark, adapters[k].name);
      const ValueId a =
          detail::add_param(program, group.a + suffix, {group.ranks(), base.shape.dim(1)}, dtype, {});
      const ValueId b = detail::add_param(program, group.b + suffix, {group.elems()}, dtype, {});
      of_weight.emplace(base.value,
                        RowAdapter{a, b, {group.parts, group.scale, static_cast<std::int32_t>(k)}});
    }
  for (std::size_t i = n_params; i < program.params.size(); ++i) program.params[i].trainable = false;
  const ValueId numbers = program.add_value({kRowAdapters, {rows}, DType::i32, ValueKind::input, -1});
  program.inputs.push_back(numbers);
  std::vector<Instr> code;
  code.swap(program.code);
  detail::Replacements now;
  for (Instr& instr : code) {
    now.apply(instr.in);
    program.code.push_back(std::move(instr));
    const Instr done = program.code.back();
    if (done.op != Op::linear) continue;
    const auto [first, last] = of_weight.equal_range(done.in[1]);
    for (auto it = first; it != last; ++it)
      now.replace(done.out[0],
                  detail::append(program, done, Op::lora_rows,
                                 {now.current(done.out[0]), done.in[0], it->second.a, it->second.b, numbers},
                                 it->second.attrs));
  }
  now.apply(program.outputs);
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
