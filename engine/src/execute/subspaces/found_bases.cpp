#include "execute/subspaces/found_bases.h"

#include <algorithm>

#include <strata/graph/subspace_passes.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

const LayoutTensor* find_parameter(const RunPlan& plan, std::string_view name) {
  const auto& specs = plan.tensors.specs;
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const LayoutTensor& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

}  // namespace

std::string FoundBases::problem_of(const LoraGroup& group) const {
  if (!group.has_basis()) return str("\n  ", group.weight, ": both factors of the adapter are trained");
  const auto& results = plan_.of(ProgramRole::refresh).results;
  const auto result =
      std::find_if(results.begin(), results.end(),
                   [&](const LoweredProgram::ResultValue& each) { return each.name == group.basis(); });
  if (result == results.end())
    return str("\n  ", group.basis(), " is no result of the program that refreshes");
  const LayoutTensor* const param = find_parameter(plan_, group.basis());
  if (param == nullptr) return str("\n  ", group.basis(), " is no parameter of this run");
  const std::int64_t found = result->operand.shape.n_elems();
  if (found == param->n_elems) return {};
  return str("\n  ", group.basis(), " has ", param->n_elems, " elements, and the result ", found);
}

Status FoundBases::check() const {
  std::string problems;
  for (const LoraGroup& group : groups_) problems += problem_of(group);
  return problems.empty() ? Status::ok()
                          : Status::error(Code::invalid, str("bases cannot be renewed:", problems));
}

VisitState FoundBases::sink() {
  for (const LoraGroup& group : groups_) {
    bases_[group.basis()].dtype = find_parameter(plan_, group.basis())->group.compute;
    energies_[energy_name(group)] = {};
  }
  return [this](const StatePiece& result, std::span<const float> values) {
    take(result, values);
    return Status::ok();
  };
}

void FoundBases::take(const StatePiece& result, std::span<const float> values) {
  if (const auto energy = energies_.find(result.name); energy != energies_.end())
    energy->second.assign(values.begin(), values.end());
  const auto found = bases_.find(result.name);
  if (found == bases_.end()) return;
  found->second.is_finite = first_non_finite(values) == values.size();
  found->second.values = values;
}

Status FoundBases::check_finite() const {
  if (plan_.options.non_finite == NonFinite::skip) return {};
  for (const auto& [name, basis] : bases_)
    if (!basis.is_finite)
      return Status::error(Code::diverged,
                           str("the basis ", name,
                               " that the gradient gives is not finite; "
                               "no basis was changed; optim.non_finite=skip keeps such bases"));
  return {};
}

std::vector<std::string> FoundBases::names() const {
  std::vector<std::string> names;
  for (const auto& [name, basis] : bases_)
    if (basis.is_finite) names.push_back(name);
  return names;
}

FillState FoundBases::editor() const {
  return [this, rounded = std::vector<std::byte>()](const StatePiece& piece,
                                                    std::span<float> values) mutable -> Status {
    const Basis& basis = bases_.find(piece.name)->second;
    rounded.resize(values.size() * size_of(basis.dtype));
    STRATA_TRY(narrow_from_f32(basis.values.subspan(static_cast<std::size_t>(piece.offset), values.size()),
                               basis.dtype, rounded));
    return widen_to_f32(basis.dtype, rounded, values);
  };
}

const FoundBases::Basis& FoundBases::basis_of(const LoraGroup& group) const {
  return bases_.find(group.basis())->second;
}

std::vector<float> FoundBases::energy(const LoraGroup& group) const {
  return energies_.find(energy_name(group))->second;
}

}  // namespace strata::detail
