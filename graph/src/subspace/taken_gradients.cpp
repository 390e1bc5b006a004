#include "subspace/taken_gradients.h"

#include <algorithm>

#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "program_edits.h"

namespace strata::detail {
namespace {

std::string problem_of_taking(const Program& program, const LoraGroup& group) {
  const ParamInfo* const matrix = find_param(program, group.weight);
  if (matrix == nullptr) return str("\n  ", group.weight, " is no parameter");
  if (!group.has_basis()) return str("\n  ", group.weight, ": both factors of the adapter are trained");
  return matrix->grad == kNoValue ? str("\n  ", group.weight, " has no gradient") : std::string();
}

}  // namespace

Result<TakenGradients> take_gradients(Program& program, std::span<const LoraGroup> groups,
                                      std::string_view what) {
  std::string problems;
  for (const LoraGroup& group : groups) problems += problem_of_taking(program, group);
  if (!problems.empty()) return Status::error(Code::invalid, str(what, ":", problems));
  TakenGradients taken;
  for (const LoraGroup& group : groups)  // if a matrix has two groups, the second finds it taken
    taken.emplace(group.weight, find_param(program, group.weight)->grad);
  for (ParamInfo& param : program.params) {
    if (taken.count(param.name) == 0) continue;
    program.values[static_cast<std::size_t>(param.grad)].kind = ValueKind::micro_batch_grad;
    param.grad = kNoValue;
    param.trainable = false;
  }
  return taken;
}

kernels::SubspaceSide side_of(const LoraGroup& group) noexcept {
  return group.trained == LoraTrained::a ? kernels::SubspaceSide::left : kernels::SubspaceSide::right;
}

std::size_t last_writer(const Program& program, ValueId value) noexcept {
  for (std::size_t i = program.code.size(); i-- > 0;)
    if (const std::vector<ValueId>& out = program.code[i].out;
        std::find(out.begin(), out.end(), value) != out.end())
      return i;
  STRATA_ASSERT(false, "nothing writes ", program.value(value).name);
  return 0;
}

void Insertions::add_behind(std::size_t index, const Program& program, Instr instr) {
  instr.region = program.code[index].region;
  instr.backward = true;
  behind_.emplace(index, std::move(instr));
}

void Insertions::apply(Program& program) && {
  std::vector<Instr> code;
  code.reserve(program.code.size() + behind_.size());
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    code.push_back(std::move(program.code[i]));
    const auto [first, last] = behind_.equal_range(i);
    for (auto it = first; it != last; ++it) code.push_back(std::move(it->second));
  }
  program.code = std::move(code);
}

}  // namespace strata::detail
