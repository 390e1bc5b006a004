#include <strata/engine/program_set.h>

#include <algorithm>
#include <array>

namespace strata {

std::string_view to_string(ProgramRole role) noexcept {
  constexpr std::array<std::string_view, 7> kNames = {"train",  "eval",    "infer",  "prefill",
                                                      "decode", "refresh", "forward"};
  return kNames[static_cast<std::size_t>(role)];
}

Program& ProgramSet::operator[](ProgramRole role) {
  for (NamedProgram& program : programs_)
    if (program.role == role) return program.program;
  programs_.push_back({std::string(to_string(role)), role, {}});
  return programs_.back().program;
}

const Program& ProgramSet::operator[](ProgramRole role) const noexcept {
  static const Program kNone;
  const NamedProgram* const found = find(role);
  return found == nullptr ? kNone : found->program;
}

const NamedProgram* ProgramSet::find(ProgramRole role) const noexcept {
  const auto found = std::find_if(programs_.begin(), programs_.end(), [&](const NamedProgram& program) {
    return program.role == role && !program.program.code.empty();
  });
  return found == programs_.end() ? nullptr : &*found;
}

void ProgramSet::plan_memory() {
  for (NamedProgram& program : programs_)
    program.memory = std::make_shared<const MemoryPlan>(strata::plan_memory(program.program));
}

}  // namespace strata
