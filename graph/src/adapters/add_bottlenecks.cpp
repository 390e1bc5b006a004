#include <map>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/passes.h>
#include <strata/runtime/str.h>

#include "program_edits.h"

namespace strata {
namespace {

/// An adapter while the program is copied.
struct Bottleneck {
  const BottleneckModule* module = nullptr;
  ValueId input = kNoValue;  // the matrix of the layer whose operand it reads; none: in series
  ValueId down = kNoValue, down_bias = kNoValue, up = kNoValue, up_bias = kNoValue;  // the parameters
};

Status check_modules(const Program& program, std::span<const BottleneckModule> modules) {
  std::string problems;
  for (const BottleneckModule& module : modules) {
    for (const std::string* const name : {&module.weight, &module.input}) {
      if (name == &module.input && name->empty()) continue;
      const ParamInfo* const param = detail::find_param(program, *name);
      if (param == nullptr)
        problems += str("\n  ", *name, " is no parameter");
      else if (!detail::is_linear_weight(program, *param))
        problems += str("\n  ", *name, " ", to_string(param->shape), " is not the matrix of a linear layer");
    }
    if (module.width < 1)
      problems += str("\n  ", module.name, ": the width is ", module.width, "; it must be at least 1");
  }
  return problems.empty() ? Status::ok()
                          : Status::error(Code::invalid, str("adapters cannot be added:", problems));
}

Bottleneck add_params(Program& program, const BottleneckModule& module) {
  const ParamInfo& weight = *detail::find_param(program, module.weight);
  const std::int64_t rows = weight.shape.dim(0);
  const DType dtype = program.value(weight.value).dtype;
  Bottleneck made{.module = &module};
  std::int64_t columns = rows;
  if (!module.input.empty()) {
    const ParamInfo& input = *detail::find_param(program, module.input);
    made.input = input.value;
    columns = input.shape.dim(1);
  }
  const auto name = [&](const char* what) { return module.name + what; };
  made.down = detail::add_param(program, name(".down.weight"), {module.width, columns}, dtype,
                                detail::linear_init(columns));
  made.down_bias = detail::add_param(program, name(".down.bias"), {module.width}, dtype, {}, false);
  made.up = detail::add_param(program, name(".up.weight"), {rows, module.width}, dtype, {});
  made.up_bias = detail::add_param(program, name(".up.bias"), {rows}, dtype, {}, false);
  return made;
}

class BottleneckPass {
 public:
  BottleneckPass(Program& program, std::span<const BottleneckModule> modules) : program_(program) {
    for (const BottleneckModule& module : modules) {
      const ValueId weight = detail::find_param(program, module.weight)->value;
      of_weight_.emplace(weight, add_params(program, module));
    }
  }

  Status run() {
    std::vector<Instr> code;
    code.swap(program_.code);
    for (Instr& instr : code) {
      now_.apply(instr.in);
      program_.code.push_back(std::move(instr));
      const Instr done = program_.code.back();
      if (done.op != Op::linear) continue;
      operand_of_[done.in[1]] = done.in[0];
      const auto [first, last] = of_weight_.equal_range(done.in[1]);
      for (auto it = first; it != last; ++it) STRATA_TRY(adapt(it->second, done));
    }
    now_.apply(program_.outputs);
    return verify(program_);
  }

 private:
  // Adds the adapter to the result of the layer.
  Status adapt(const Bottleneck& bottleneck, const Instr& layer) {
    const BottleneckModule& module = *bottleneck.module;
    const ValueId result = now_.current(layer.out[0]);
    ValueId x = result;
    if (bottleneck.input != kNoValue) {
      const auto found = operand_of_.find(bottleneck.input);
      if (found == operand_of_.end())
        return Status::error(Code::invalid, str("adapters cannot be added:\n  ", module.name, " reads what ",
                                                module.input, " does, which comes after ", module.weight));
      x = found->second;
    }
    const auto linear = [&](ValueId of, ValueId weight, ValueId bias) {
      return detail::append(program_, layer, Op::linear, {of, weight, bias}, LinearAttrs{});
    };
    const ValueId active = detail::append(program_, layer, module.gelu ? Op::gelu : Op::relu,
                                          {linear(x, bottleneck.down, bottleneck.down_bias)}, NoAttrs{});
    ValueId change = linear(active, bottleneck.up, bottleneck.up_bias);
    if (module.scale != 1)
      change = detail::append(program_, layer, Op::scale, {change}, ScaleAttrs{module.scale});
    now_.replace(layer.out[0], detail::append(program_, layer, Op::add, {result, change}, NoAttrs{}));
    return {};
  }

  Program& program_;
  std::multimap<ValueId, Bottleneck> of_weight_;
  std::map<ValueId, ValueId> operand_of_;  // the operand of each layer so far, keyed by the layer's matrix
  detail::Replacements now_;
};

}  // namespace

Result<Program> add_bottlenecks(Program program, std::span<const BottleneckModule> modules) {
  STRATA_TRY(check_modules(program, modules));
  STRATA_TRY(BottleneckPass(program, modules).run());
  return program;
}

}  // namespace strata
