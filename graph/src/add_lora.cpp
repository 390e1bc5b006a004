#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "program_edits.h"

namespace strata {
namespace {

using detail::add_param;
using detail::append;

/// What reads a matrix, while the program is copied.
struct Adapted {
  LoraGroup group;
  ValueId a = kNoValue, b = kNoValue, magnitude = kNoValue, a0 = kNoValue, b0 = kNoValue;  // the parameters
  bool is_dora() const { return magnitude != kNoValue; }
};
using AdaptersOfWeights = std::multimap<ValueId, Adapted>;

Status check_groups(const Program& program, std::span<const LoraGroup> groups) {
  std::string problems;
  for (const LoraGroup& group : groups) {
    problems += detail::problems_of_lora(program, group);
    if (group.pissa && !group.magnitude.empty())
      problems += str("\n  ", group.weight, ": DoRA and PiSSA cannot be combined");
  }
  return problems.empty() ? Status::ok()
                          : Status::error(Code::invalid, str("adapters cannot be added:", problems));
}

/// A and B start as the matrix's principal part, and A0 and B0 stay that.
void start_as_principal(Program& program, const LoraGroup& group, Adapted& adapted) {
  const DType dtype = program.value(adapted.a).dtype;
  const Shape shape = program.value(adapted.a).shape;
  const auto init_of = [&](PrincipalFactor::Side side) {
    return Init{.principal = {group.weight, group.parts, group.scale, side, dtype, *group.pissa}};
  };
  const auto param = [&](ValueId value) -> ParamInfo& {
    return program.params[static_cast<std::size_t>(program.value(value).param)];
  };
  const Init of_a = init_of(PrincipalFactor::Side::a), of_b = init_of(PrincipalFactor::Side::b);
  param(adapted.a).init = of_a;
  param(adapted.b).init = of_b;
  adapted.a0 = add_param(program, group.a0, shape, dtype, of_a);
  adapted.b0 = add_param(program, group.b0, {group.elems()}, dtype, of_b);
  for (const ValueId frozen : {adapted.a0, adapted.b0}) {
    param(frozen).trainable = false;
    param(frozen).derived = true;
  }
}

// The parameters of all groups. Magnitudes come last, so that DoRA draws the same A as LoRA, and are f32, as
// their updates are small beside them.
AdaptersOfWeights add_params(Program& program, std::span<const LoraGroup> groups) {
  AdaptersOfWeights of_weight;
  std::vector<Adapted*> all;
  for (const LoraGroup& group : groups) {
    const ParamInfo& base = *detail::find_param(program, group.weight);
    const ValueId weight = base.value;
    const DType dtype = program.value(weight).dtype;
    const std::int64_t inner = base.shape.dim(1);
    const bool decays = !group.has_basis();
    const Init a = group.has_basis() ? Init{} : detail::linear_init(inner);
    Adapted adapted{group, add_param(program, group.a, {group.ranks(), inner}, dtype, a, decays),
                    add_param(program, group.b, {group.elems()}, dtype, {}, decays)};
    const ValueId frozen = group.trained == LoraTrained::a ? adapted.b : adapted.a;
    if (group.has_basis())
      program.params[static_cast<std::size_t>(program.value(frozen).param)].trainable = false;
    all.push_back(&of_weight.emplace(weight, std::move(adapted))->second);
  }
  for (Adapted* const adapted : all) {
    const LoraGroup& group = adapted->group;
    if (group.pissa) start_as_principal(program, group, *adapted);
    if (group.magnitude.empty()) continue;
    const DType dtype = program.value(adapted->b).dtype;
    adapted->magnitude = add_param(program, group.magnitude, {group.rows()}, DType::f32,
                                   {.norms = {group.weight, group.parts, dtype}});
  }
  return of_weight;
}

/// Appends y + scale B A x, where x is what the linear layer `done` reads.
ValueId append_product(Program& program, const Instr& done, ValueId y, ValueId a, ValueId b, float scale,
                       const LoraAttrs& parts) {
  ValueId u = append(program, done, Op::linear, {done.in[0], a, kNoValue}, LinearAttrs{});
  if (scale != 1) u = append(program, done, Op::scale, {u}, ScaleAttrs{scale});
  return append(program, done, Op::lora_up, {y, u, b}, parts);
}

/// Appends an adapter to the linear layer `done`, whose result is `y` so far, and returns the sum. With DoRA,
/// `bias` is added behind it. With PiSSA, what it starts as is subtracted first, as what remains is small.
ValueId append_adapter(Program& program, const Instr& done, const Adapted& adapted, ValueId y, ValueId bias) {
  const LoraGroup& group = adapted.group;
  if (adapted.a0 != kNoValue)
    y = append_product(program, done, y, adapted.a0, adapted.b0, -group.scale, group.parts);
  y = append_product(program, done, y, adapted.a, adapted.b, group.scale, group.parts);
  if (!adapted.is_dora()) return y;
  const ValueId norm = append(program, done, Op::dora_norm, {done.in[1], adapted.a, adapted.b},
                              DoraNormAttrs{.parts = group.parts, .scale = group.scale});
  return append(program, done, Op::scale_columns, {y, adapted.magnitude, norm, bias}, group.parts);
}

}  // namespace

std::int64_t LoraGroup::ranks() const noexcept {
  std::int64_t n = 0;
  for (const LoraPart& part : parts.all()) n += part.rank;
  return n;
}

std::int64_t LoraGroup::rows() const noexcept {
  std::int64_t n = 0;
  for (const LoraPart& part : parts.all()) n += part.rows;
  return n;
}

std::int64_t LoraGroup::elems() const noexcept {
  std::int64_t n = 0;
  for (const LoraPart& part : parts.all()) n += part.rows * part.rank;
  return n;
}

std::vector<LoraGroup> group_lora_modules(std::span<const LoraModule> modules) {
  std::vector<LoraGroup> groups;
  std::map<std::string, int> n_of_weight;
  for (const LoraModule& module : modules) {
    auto found = std::find_if(groups.begin(), groups.end(), [&](const LoraGroup& group) {
      return group.weight == module.weight && group.scale == module.scale &&
             group.magnitude.empty() != module.dora && group.trained == module.trained &&
             group.pissa == module.pissa;
    });
    if (found == groups.end()) {
      const int number = n_of_weight[module.weight]++;
      const std::string base = module.weight.substr(0, module.weight.rfind(".weight"));
      const std::string suffix = number == 0 ? "" : str(".", number);
      const auto name = [&](const char* what, bool has) {
        return has ? str(base, what, suffix) : std::string();
      };
      groups.push_back({module.weight,
                        module.scale,
                        {},
                        name(".lora_A", true),
                        name(".lora_B", true),
                        name(".lora_magnitude", module.dora),
                        module.trained,
                        name(".lora_outside", module.trained != LoraTrained::both),
                        module.pissa,
                        name(".lora_A0", module.pissa.has_value()),
                        name(".lora_B0", module.pissa.has_value())});
      found = groups.end() - 1;
    }
    LoraAttrs& parts = found->parts;
    STRATA_ASSERT(parts.n < static_cast<std::int64_t>(parts.part.size()), module.weight, " has more than ",
                  parts.part.size(), " adapters");
    parts.part[static_cast<std::size_t>(parts.n++)] = module.part;
  }
  for (LoraGroup& group : groups)
    std::sort(group.parts.part.begin(), group.parts.part.begin() + group.parts.n,
              [](const LoraPart& a, const LoraPart& b) { return a.first_row < b.first_row; });
  return groups;
}

Result<Program> add_lora(Program program, std::span<const LoraGroup> groups) {
  STRATA_TRY(check_groups(program, groups));
  const AdaptersOfWeights of_weight = add_params(program, groups);
  std::vector<Instr> code;
  code.swap(program.code);
  detail::Replacements now;
  for (Instr& instr : code) {
    now.apply(instr.in);
    const auto [first, last] = instr.op == Op::linear ? of_weight.equal_range(instr.in[1])
                                                      : std::pair(of_weight.end(), of_weight.end());
    std::int64_t n_dora = std::count_if(first, last, [](const auto& of) { return of.second.is_dora(); });
    const ValueId bias = n_dora > 0 ? std::exchange(instr.in[2], kNoValue) : kNoValue;  // it is not scaled
    program.code.push_back(std::move(instr));
    const Instr done = program.code.back();
    for (auto it = first; it != last; ++it) {
      const bool is_last = it->second.is_dora() && --n_dora == 0;
      const ValueId y = now.current(done.out[0]);
      now.replace(done.out[0], append_adapter(program, done, it->second, y, is_last ? bias : kNoValue));
    }
  }
  now.apply(program.outputs);
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
