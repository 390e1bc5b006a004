#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/subspace_passes.h>
#include <strata/runtime/str.h>

#include "program_edits.h"
#include "subspace/taken_gradients.h"

namespace strata {
namespace {

constexpr std::string_view kNotFound = "bases cannot be found";

/// The parameter of the group's basis, which is added if the program lacks it.
ValueId basis_of(Program& program, const LoraGroup& group) {
  if (const ParamInfo* const found = detail::find_param(program, group.basis()); found != nullptr)
    return found->value;
  const ParamInfo& matrix = *detail::find_param(program, group.weight);
  const DType dtype = program.value(matrix.value).dtype;
  const Shape shape =
      group.trained == LoraTrained::a ? Shape{group.elems()} : Shape{group.ranks(), matrix.shape.dim(1)};
  const ValueId value = detail::add_param(program, group.basis(), shape, dtype, {}, false);
  program.params.back().trainable = false;
  return value;
}

Status check_no_other_gradient(const Program& program) {
  std::string problems;
  for (const ParamInfo& param : program.params)
    if (param.grad != kNoValue) problems += str("\n  ", param.name, " has a gradient that nothing uses");
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, str(kNotFound, ":", problems));
}

}  // namespace

std::string energy_name(const LoraGroup& group) { return group.basis() + ".energy"; }

Result<Program> find_bases(Program program, std::span<const LoraGroup> groups, kernels::SvdMethod method) {
  STRATA_TRY_ASSIGN(const detail::TakenGradients gradients,
                    detail::take_gradients(program, groups, kNotFound));
  STRATA_TRY(check_no_other_gradient(program));
  for (ParamInfo& param : program.params) param.trainable = false;
  detail::Insertions added;
  for (const LoraGroup& group : groups) {
    const ValueId gradient = gradients.at(group.weight);
    Instr instr{.op = Op::find_basis,
                .in = {gradient, basis_of(program, group)},
                .out = {},
                .attrs = BasisAttrs{.parts = group.parts, .side = detail::side_of(group), .method = method}};
    STRATA_TRY_ASSIGN(const std::vector<OutputSpec> specs, infer_outputs(program, instr));
    for (const OutputSpec& spec : specs) instr.out.push_back(add_output(program, group.basis(), spec));
    const std::string names[] = {group.basis(), energy_name(group)};
    for (std::size_t k = 0; k < std::size(names); ++k) {
      program.values[static_cast<std::size_t>(instr.out[k])].name = names[k];
      program.results.push_back(instr.out[k]);
    }
    added.add_behind(detail::last_writer(program, gradient), program, std::move(instr));
  }
  std::move(added).apply(program);
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
