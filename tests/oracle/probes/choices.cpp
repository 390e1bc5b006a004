#include "choices.h"

#include <bit>
#include <stdexcept>

#include <strata/graph/op_list.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::string_view kPrefix = "choices.";

/// Whether the instruction is a choice: of a single expert there is none.
bool chooses(const Program& program, const Instr& instr) {
  return instr.op == Op::router_top_k && program.value(instr.in[0]).shape.dim(1) > 1;
}

}  // namespace

Program with_choices(Program program) {
  std::size_t n = 0;
  for (const Instr& instr : program.code)
    if (chooses(program, instr)) {
      program.values[static_cast<std::size_t>(instr.out[0])].name = str(kPrefix, n++);
      program.outputs.push_back(instr.out[0]);
    }
  return program;
}

void Choices::add(const std::string& of, const Program& program, const Output& output) {
  std::vector<std::uint64_t> shape;
  Runs& runs = runs_[of];
  std::uint64_t routers = 0;
  for (const ValueId id : program.outputs) {
    const ValueInfo& value = program.value(id);
    if (value.name.rfind(kPrefix, 0) != 0) continue;
    const auto tokens = static_cast<std::uint64_t>(value.shape.dim(0));
    const auto k = static_cast<std::uint64_t>(value.shape.dim(1));
    const std::span<const float> chosen = output(value.name);
    if (chosen.size() != tokens * k)
      throw std::runtime_error(
          str(value.name, " of ", of, ": ", chosen.size(), " choices, not ", tokens * k));
    for (const float expert : chosen) runs.experts.push_back(std::bit_cast<std::int32_t>(expert));
    const std::uint64_t before = runs.shape.empty() ? 0 : runs.shape[0];
    shape = {before + 1, ++routers, tokens, k};
  }
  runs.shape = shape;
}

void Choices::write(const std::string& out) const {
  std::vector<TensorSpec> specs;
  for (const auto& [of, runs] : runs_)
    if (!runs.experts.empty()) specs.push_back({of, "I32", runs.shape});
  if (specs.empty()) return;
  const auto writer = must(SafetensorsWriter::create(posix_io(), out + "/choices.safetensors", specs));
  for (const TensorSpec& spec : specs)
    must(writer->append(std::as_bytes(std::span(runs_.at(spec.name).experts))));
  must(writer->finish());
}

}  // namespace strata
