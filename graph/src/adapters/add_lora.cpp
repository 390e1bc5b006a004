#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "program_edits.h"

namespace strata {
namespace {

using detail::add_param;
using detail::append;

/// An adapter and its values, while the program is copied.
struct Adapted {
  LoraGroup group;
  ValueId a = kNoValue, b = kNoValue, magnitude = kNoValue, a0 = kNoValue, b0 = kNoValue;  // the parameters
  std::uint32_t number = 0;  // the number of the group
  bool is_dora() const { return magnitude != kNoValue; }
};
using AdaptersOfWeights = std::multimap<ValueId, Adapted>;

Status check_groups(const Program& program, std::span<const LoraGroup> groups, float dropout) {
  std::string problems;
  for (const LoraGroup& group : groups) {
    problems += detail::problems_of_lora(program, group);
    if (group.place != LoraPlace::linear && (group.pissa || !group.magnitude.empty()))
      problems += str("\n  ", group.weight, ": DoRA and PiSSA are of linear layers");
    if (dropout > 0 && group.place == LoraPlace::experts)
      problems += str("\n  ", group.weight, ": what experts read cannot be dropped out");
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

/// A and B of a group, as they start.
Adapted add_factors(Program& program, const LoraGroup& group, std::uint32_t number) {
  const ParamInfo base = *detail::find_param(program, group.weight);
  const DType dtype = program.value(base.value).dtype;
  const std::int64_t inner = base.shape.dim(base.shape.rank - 1);
  const auto add = [&](const std::string& name, const Shape& shape, const Init& init, bool decays = true) {
    return add_param(program, name, shape, dtype, init, decays);
  };
  const auto adapted = [&](ValueId a, ValueId b) {
    return Adapted{.group = group, .a = a, .b = b, .number = number};
  };
  const Init start = detail::linear_init(inner), normal = {.std = 1};
  switch (group.place) {
    case LoraPlace::embedding: {
      const ValueId a = add(group.a, {base.shape.dim(0), group.ranks()}, {});
      return adapted(a, add(group.b, {group.elems()}, normal));
    }
    case LoraPlace::head:
    case LoraPlace::gate: {
      const ValueId a = add(group.a, {group.ranks(), inner}, start);
      return adapted(a, add(group.b, {group.rows(), group.ranks()}, {}));
    }
    case LoraPlace::experts: {
      const std::int64_t experts = base.shape.dim(0);
      const ValueId a = add(group.a, {experts, group.ranks(), inner}, start);
      return adapted(a, add(group.b, {experts, group.rows(), group.ranks()}, {}));
    }
    case LoraPlace::linear:
      break;
  }
  const bool decays = !group.has_basis();
  const ValueId a = add(group.a, {group.ranks(), inner}, decays ? start : Init{}, decays);
  const ValueId b = add(group.b, {group.elems()}, {}, decays);
  if (group.has_basis()) {
    const ValueId frozen = group.trained == LoraTrained::a ? b : a;
    program.params[static_cast<std::size_t>(program.value(frozen).param)].trainable = false;
  }
  return adapted(a, b);
}

// The parameters of all groups. Magnitudes come last, so that DoRA draws the same A as LoRA, and are f32, as
// their updates are small beside them.
AdaptersOfWeights add_params(Program& program, std::span<const LoraGroup> groups) {
  AdaptersOfWeights of_weight;
  std::vector<Adapted*> all;
  for (const LoraGroup& group : groups) {
    const ValueId weight = detail::find_param(program, group.weight)->value;
    Adapted adapted = add_factors(program, group, static_cast<std::uint32_t>(all.size()));
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

/// Copies a program with its adapters.
class Adder {
 public:
  Adder(Program& program, const AdaptersOfWeights& of_weight, float dropout)
      : program_(program), of_weight_(of_weight), dropout_(dropout) {}

  Status run() {
    std::vector<Instr> code;
    code.swap(program_.code);
    for (Instr& instr : code) {
      now_.apply(instr.in);
      switch (instr.op) {
        case Op::linear:
          add_to_linear(std::move(instr));
          break;
        case Op::linear_cross_entropy:
          STRATA_TRY(add_to_loss(std::move(instr)));
          break;
        case Op::embedding:
          add_to_embedding(std::move(instr));
          break;
        case Op::expert_linear:
          add_to_experts(std::move(instr));
          break;
        default:
          program_.code.push_back(std::move(instr));
      }
    }
    detail::replace_outputs(program_, now_);
    return {};
  }

 private:
  std::vector<const Adapted*> of(const Instr& instr, bool of_table) const {
    std::vector<const Adapted*> found;
    const auto [first, last] = of_weight_.equal_range(instr.in[1]);
    for (auto it = first; it != last; ++it)
      if ((it->second.group.place == LoraPlace::embedding) == of_table) found.push_back(&it->second);
    return found;
  }
  ValueId add(const Instr& of, Op op, std::vector<ValueId> in, const Attrs& attrs) {
    return append(program_, of, op, std::move(in), attrs);
  }
  /// The value that A reads in place of the operand x: x itself, or x after dropout.
  ValueId dropped(const Instr& done, const Adapted& adapted) {
    if (dropout_ == 0) return done.in[0];
    if (keys_ == kNoValue) {
      const Shape shape = {program_.value(done.in[0]).shape.dim(0), 2};
      keys_ = program_.add_value({kDropoutKeys, shape, DType::i32, ValueKind::input, -1});
      program_.inputs.push_back(keys_);
    }
    return add(done, Op::dropout, {done.in[0], keys_}, DropoutAttrs{dropout_, adapted.number});
  }
  ValueId scaled(const Instr& done, ValueId u, float scale) {
    return scale == 1 ? u : add(done, Op::scale, {u}, ScaleAttrs{scale});
  }
  /// Appends y + scale B A x.
  ValueId add_product(const Instr& done, ValueId x, ValueId y, ValueId a, ValueId b, float scale,
                      const LoraAttrs& parts) {
    const ValueId u = add(done, Op::linear, {x, a, kNoValue}, LinearAttrs{});
    return add(done, Op::lora_up, {y, scaled(done, u, scale), b}, parts);
  }
  /// Appends an adapter to the linear layer `done`, whose result is `y` so far, and returns the sum. With
  /// DoRA, `bias` is added behind it. With PiSSA, what it starts as is subtracted first, as what remains is
  /// small.
  ValueId add_adapter(const Instr& done, const Adapted& adapted, ValueId y, ValueId bias) {
    const LoraGroup& group = adapted.group;
    if (group.place == LoraPlace::head || group.place == LoraPlace::gate)
      return add_to_head(done, adapted, y);
    if (adapted.a0 != kNoValue)
      y = add_product(done, done.in[0], y, adapted.a0, adapted.b0, -group.scale, group.parts);
    const ValueId x = dropped(done, adapted);
    if (adapted.is_dora() && x != done.in[0]) return add_dropped_dora(done, adapted, x, y, bias);
    y = add_product(done, x, y, adapted.a, adapted.b, group.scale, group.parts);
    return adapted.is_dora() ? add_norms(done, adapted, y, bias) : y;
  }
  ValueId add_norms(const Instr& done, const Adapted& adapted, ValueId y, ValueId bias) {
    const LoraGroup& group = adapted.group;
    const ValueId norm = add(done, Op::dora_norm, {done.in[1], adapted.a, adapted.b},
                             DoraNormAttrs{.parts = group.parts, .scale = group.scale});
    return add(done, Op::scale_columns, {y, adapted.magnitude, norm, bias}, group.parts);
  }
  /// y + c (W x' + s B A x') - W x', with the dropped operand x' and c = m / norm: DoRA's change is what PEFT
  /// drops out.
  ValueId add_dropped_dora(const Instr& done, const Adapted& adapted, ValueId x, ValueId y, ValueId bias) {
    const LoraGroup& group = adapted.group;
    const ValueId plain = add(done, Op::linear, {x, done.in[1], kNoValue}, LinearAttrs{});
    const ValueId minus = add(done, Op::scale, {plain}, ScaleAttrs{-1});
    const ValueId whole = add_product(done, x, plain, adapted.a, adapted.b, group.scale, group.parts);
    const ValueId changed = add_norms(done, adapted, whole, bias);
    return add(done, Op::add, {add(done, Op::add, {y, minus}, NoAttrs{}), changed}, NoAttrs{});
  }
  /// B is a matrix here. In inference its product is f32 beside 16-bit operands, as the logits are; in
  /// training the logits that are appended here are rounded to the dtype of x, as those of PEFT are.
  ValueId add_to_head(const Instr& done, const Adapted& adapted, ValueId y) {
    const ValueId u = add(done, Op::linear, {dropped(done, adapted), adapted.a, kNoValue}, LinearAttrs{});
    const ValueId v =
        add(done, Op::linear, {scaled(done, u, adapted.group.scale), adapted.b, kNoValue}, done.attrs);
    return add(done, Op::add, {y, v}, NoAttrs{});
  }

  void add_to_linear(Instr instr) {
    const std::vector<const Adapted*> adapters = of(instr, false);
    auto n_dora =
        std::count_if(adapters.begin(), adapters.end(), [](const Adapted* a) { return a->is_dora(); });
    const ValueId bias = n_dora > 0 ? std::exchange(instr.in[2], kNoValue) : kNoValue;  // it is not scaled
    program_.code.push_back(std::move(instr));
    const Instr done = program_.code.back();
    for (const Adapted* const adapted : adapters) {
      const bool is_last = adapted->is_dora() && --n_dora == 0;
      const ValueId y = now_.current(done.out[0]);
      now_.replace(done.out[0], add_adapter(done, *adapted, y, is_last ? bias : kNoValue));
    }
  }
  /// Adds the adapters of the head, for which the logits must exist.
  Status add_to_loss(Instr instr) {
    const std::vector<const Adapted*> adapters = of(instr, false);
    if (adapters.empty()) {
      program_.code.push_back(std::move(instr));
      return {};
    }
    STRATA_TRY_ASSIGN(
        const Instr head,
        detail::append_logits(program_, instr, str("an adapter of ", adapters.front()->group.weight)));
    ValueId logits = head.out[0];
    for (const Adapted* const adapted : adapters) logits = add_to_head(head, *adapted, logits);
    detail::append_loss(program_, instr, logits, now_);
    return {};
  }
  void add_to_embedding(Instr instr) {
    const std::vector<const Adapted*> adapters = of(instr, true);
    program_.code.push_back(std::move(instr));
    const Instr done = program_.code.back();
    for (const Adapted* const adapted : adapters) {
      const ValueId u = add(done, Op::embedding, {done.in[0], adapted->a}, done.attrs);
      const ValueId y = now_.current(done.out[0]);
      now_.replace(done.out[0], add(done, Op::lora_up, {y, scaled(done, u, adapted->group.scale), adapted->b},
                                    adapted->group.parts));
    }
  }

  /// The adapters of experts are experts themselves.
  void add_to_experts(Instr instr) {
    const std::vector<const Adapted*> adapters = of(instr, false);
    program_.code.push_back(std::move(instr));
    const Instr done = program_.code.back();
    const auto product = [&](ValueId rows, ValueId matrices) {
      return add(done, Op::expert_linear, {rows, matrices, done.in[2], kNoValue, kNoValue}, done.attrs);
    };
    for (const Adapted* const adapted : adapters) {
      const ValueId u = scaled(done, product(done.in[0], adapted->a), adapted->group.scale);
      const ValueId y = now_.current(done.out[0]);
      now_.replace(done.out[0], add(done, Op::add, {y, product(u, adapted->b)}, NoAttrs{}));
    }
  }

  Program& program_;
  const AdaptersOfWeights& of_weight_;
  const float dropout_;
  ValueId keys_ = kNoValue;
  detail::Replacements now_;
};

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
             group.pissa == module.pissa && group.place == module.place;
    });
    if (found == groups.end()) {
      const int number = n_of_weight[module.weight]++;
      const std::string base = module.weight.substr(0, module.weight.rfind(".weight"));
      const std::string suffix = number == 0 ? "" : str(".", number);
      const auto name = [&](const char* what, bool has) {
        return has ? str(base, what, suffix) : std::string();
      };
      const bool of_table = module.place == LoraPlace::embedding;
      groups.push_back({module.weight,
                        module.scale,
                        {},
                        name(of_table ? ".lora_embedding_A" : ".lora_A", true),
                        name(of_table ? ".lora_embedding_B" : ".lora_B", true),
                        name(".lora_magnitude", module.dora),
                        module.trained,
                        name(".lora_outside", module.trained != LoraTrained::both),
                        module.pissa,
                        name(".lora_A0", module.pissa.has_value()),
                        name(".lora_B0", module.pissa.has_value()),
                        module.place});
      found = groups.end() - 1;
    }
    LoraAttrs& parts = found->parts;
    STRATA_ASSERT(parts.n < parts.part.size(), module.weight, " has more than ", parts.part.size(),
                  " adapters");
    parts.part[parts.n++] = module.part;
  }
  for (LoraGroup& group : groups)
    std::sort(group.parts.part.begin(), group.parts.part.begin() + static_cast<std::ptrdiff_t>(group.parts.n),
              [](const LoraPart& a, const LoraPart& b) { return a.first_row < b.first_row; });
  return groups;
}

Result<Program> add_lora(Program program, std::span<const LoraGroup> groups, float dropout) {
  STRATA_TRY(check_groups(program, groups, dropout));
  const AdaptersOfWeights of_weight = add_params(program, groups);
  STRATA_TRY(Adder(program, of_weight, dropout).run());
  STRATA_TRY(verify(program));
  return program;
}

}  // namespace strata
