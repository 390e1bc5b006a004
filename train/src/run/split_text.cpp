#include "run/split_text.h"

#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include <strata/graph/ops.h>
#include <strata/parallel/device_mesh.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

// "layers.*.qkv.weight": of all layers.
std::string without_numbers(const std::string& name) {
  std::string pattern;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    const bool begins = is_digit && i > 0 && name[i - 1] == '.';
    if (begins)
      pattern += '*';
    else if (!is_digit || pattern.empty() || pattern.back() != '*')
      pattern += name[i];
  }
  return pattern;
}

std::string tensors_text(const TensorTable& tensors) {
  std::vector<std::string> shared;
  std::map<std::string, bool> known;
  int whole = 0;
  for (std::size_t t = 0; t < tensors.specs.size(); ++t) {
    if (tensors.whole_shape(t) == tensors.shapes[t]) {
      ++whole;
      continue;
    }
    std::string text = str(without_numbers(tensors.specs[t].name), " ", to_string(tensors.whole_shape(t)),
                           " -> ", to_string(tensors.shapes[t]));
    if (known.emplace(text, true).second) shared.push_back(std::move(text));
  }
  std::string all;
  for (const std::string& text : shared) all += (all.empty() ? "" : "; ") + text;
  return str(all.empty() ? "no tensor is shared" : all, "; ", plural(whole, "tensor"), " of a rank whole");
}

struct Exchanged {
  int n = 0;
  std::uint64_t bytes = 0;
};

std::string collectives_text(const LoweredProgram& program) {
  std::map<std::pair<std::string, std::string>, Exchanged> by_kind;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const LoweredInstr& instr = program.code[i];
    if (!is_collective(instr.op) || instr.op == Op::shift_end) continue;
    const auto axis = static_cast<MeshAxis>(instr.attrs.as<CollectiveAttrs>().axis);
    const std::string name = instr.op == Op::shift_begin ? "shift" : std::string(op_name(instr.op));
    Exchanged& sum = by_kind[{std::string(to_string(axis)), name}];
    ++sum.n;
    sum.bytes += program.uses.positions[i].sent_bytes;
  }
  std::string text;
  for (const auto& [kind, sum] : by_kind)
    text += str(text.empty() ? "" : ", ", sum.n, " x ", kind.second, " along ", kind.first, " (",
                format_bytes(sum.bytes), ")");
  return text;
}

}  // namespace

std::string split_lines(const RunPlan& plan) {
  if (plan.options.model.ranks() == 1) return {};
  return str("split    ", tensors_text(plan.tensors), "\nsplit    a micro-batch has ",
             collectives_text(plan.of(ProgramRole::train)), "\n");
}

}  // namespace strata
