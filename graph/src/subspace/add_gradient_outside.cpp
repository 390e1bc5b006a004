#include <algorithm>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/subspace_passes.h>
#include <strata/runtime/str.h>

#include "program_edits.h"
#include "subspace/taken_gradients.h"

namespace strata {
namespace {

constexpr std::string_view kNotOutside = "the gradient outside of bases cannot be computed";

/// Adds the group's parameter, and returns the value that is its gradient.
ValueId add_outside_param(Program& program, const LoraGroup& group) {
  detail::add_param(program, group.outside, {1}, DType::f32, {}, false);
  const auto index = static_cast<std::int32_t>(program.params.size() - 1);
  const ValueId grad =
      program.add_value({str("d(", group.outside, ")"), {1}, DType::f32, ValueKind::grad, index});
  return program.params.back().grad = grad;
}

Status check_factors(const Program& program, std::span<const LoraGroup> groups) {
  std::string problems;
  for (const LoraGroup& group : groups) {
    const ParamInfo* const factor = detail::find_param(program, group.factor());
    if (group.has_basis() && (factor == nullptr || factor->grad == kNoValue))
      problems += str("\n  ", group.factor(), " has no gradient");
  }
  return problems.empty() ? Status::ok() : Status::error(Code::invalid, str(kNotOutside, ":", problems));
}

}  // namespace

Result<Program> add_gradient_outside(Program program, std::span<const LoraGroup> groups) {
  STRATA_TRY(check_factors(program, groups));
  STRATA_TRY_ASSIGN(const detail::TakenGradients gradients,
                    detail::take_gradients(program, groups, kNotOutside));
  detail::Insertions added;
  for (const LoraGroup& group : groups) {
    const ValueId whole = gradients.at(group.weight);
    const ValueId projected = detail::find_param(program, group.factor())->grad;
    Instr instr{.op = Op::gradient_outside,
                .in = {whole, projected},
                .out = {},
                .attrs = BasisAttrs{.parts = group.parts, .side = detail::side_of(group)}};
    STRATA_TRY_ASSIGN(const std::vector<OutputSpec> specs, infer_outputs(program, instr));
    instr.out.push_back(add_outside_param(program, group));
    for (const OutputSpec& spec : std::span(specs).subspan(1))
      instr.out.push_back(add_output(program, group.outside, spec));
    const std::size_t complete =
        std::max(detail::last_writer(program, whole), detail::last_writer(program, projected));
    added.add_behind(complete, program, std::move(instr));
  }
  std::move(added).apply(program);
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
