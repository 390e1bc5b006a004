#include <strata/graph/partition.h>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/graph/passes.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

#include "sharding/annotated.h"
#include "sharding/conversion.h"
#include "sharding/wanted_columns.h"

namespace strata {
namespace {

using detail::Annotated;
using detail::ConversionStep;

constexpr double kImpossible = std::numeric_limits<double>::infinity();
/// Operations that take as long as a byte's exchange takes, about, on a CPU and on a GPU.
constexpr double kFlopsPerByte = 1000;

/// Whether each value needs a gradient: it depends on a trainable parameter.
std::vector<bool> values_with_grads(const Program& program) {
  std::vector<bool> needs(program.values.size(), false);
  for (const ParamInfo& param : program.params)
    needs[static_cast<std::size_t>(param.value)] = param.trainable;
  for (const Instr& instr : program.code)
    if (std::any_of(instr.in.begin(), instr.in.end(),
                    [&](ValueId id) { return id != kNoValue && needs[static_cast<std::size_t>(id)]; }))
      for (const ValueId id : instr.out) needs[static_cast<std::size_t>(id)] = true;
  return needs;
}

class Partitioner : public ShardedCode {
 public:
  Partitioner(const Program& program, const ShardAxis& axis, Annotated annotated)
      : from_(program),
        axis_(axis),
        annotated_(std::move(annotated)),
        wanted_(detail::wanted_columns(program)),
        has_grad_(values_with_grads(program)),
        home_(program.values.size()),
        id_(program.values.size(), kNoValue) {
    for (const Instr& instr : from_.code)
      if (instr.op == Op::shift_begin)
        next_number_ = std::max(next_number_, instr.attrs.as<CollectiveAttrs>().number + 1);
    to_.regions = from_.regions;
    to_.params = from_.params;
  }

  Result<Program> run() {
    add_params_and_inputs();
    STRATA_TRY(split_gathered_params());
    for (std::size_t i = 0; i < from_.code.size(); ++i)
      if (const Status status = add(from_.code[i], annotated_.results[i]); !status.is_ok())
        return status.annotate(str("instruction ", i, ", ", detail::activation_name(from_, from_.code[i])));
    for (const ValueId id : from_.outputs) STRATA_TRY(add_output(id));
    set_parts();
    STRATA_TRY(verify(to_));
    return std::move(to_);
  }

 private:
  struct Home {
    ShardPlacement at;
    bool decided = false;                         // parameters only: some instruction has read it
    const ShardAnnotation* annotation = nullptr;  // parameters only
  };
  struct Choice {
    ShardStrategy strategy;
    double bytes = kImpossible;
  };

  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  bool is_param(ValueId id) const { return from_.value(id).kind == ValueKind::param; }
  bool is_state(ValueId id) const { return from_.value(id).kind == ValueKind::state; }
  // Its first reader decides where it is.
  bool is_stored(ValueId id) const { return is_param(id) || is_state(id); }

  void add_params_and_inputs() {
    for (std::size_t p = 0; p < from_.params.size(); ++p) {
      const ValueId id = from_.params[p].value;
      to_.params[p].value = id_[at(id)] = to_.add_value(from_.value(id));
      Home& home = home_[at(id)];
      home.annotation = annotated_.params[p];
      if (home.annotation != nullptr && home.annotation->dim >= 0)
        home.at = ShardPlacement::split(home.annotation->dim, {});
    }
    for (const ValueId id : from_.inputs) {
      id_[at(id)] = to_.add_value(from_.value(id));
      to_.inputs.push_back(id_[at(id)]);
    }
    for (const ValueId id : from_.states) {
      id_[at(id)] = to_.add_value(from_.value(id));
      to_.states.push_back(id_[at(id)]);
    }
  }

  /// Splits parameters that are gathered for their readers evenly, whatever the readers are.
  Status split_gathered_params() {
    for (const ParamInfo& param : from_.params) {
      const ShardAnnotation* const annotation = home_[at(param.value)].annotation;
      if (annotation == nullptr || !annotation->gathered) continue;
      const Cut even = Cut::even(param.shape.dim(annotation->dim));
      if (!even.divides(axis_.ranks) || even.repeats(axis_.ranks))
        return Status::error(
            Code::invalid,
            str(detail::to_string(*annotation), ": dimension ", annotation->dim, " of ", param.name, " ",
                to_string(param.shape), " cannot be shared by ", axis_.ranks, " ranks equally"));
      decide(param.value, ShardPlacement::split(annotation->dim, even));
    }
    return {};
  }

  /// The price of a state that nothing has read yet.
  double price_of_state(const ValueInfo& whole, const ShardPlacement& to) const {
    if (to.kind == ShardPlacement::Kind::replicated) return 0;
    const bool suits =
        to.is_split() && to.cut.extent() == whole.shape.dim(to.dim) && to.cut.divides(axis_.ranks);
    return suits ? 0 : kImpossible;
  }

  /// Bytes to have a value in a placement, which decides that of a parameter that has none yet.
  double price(ValueId id, const ShardPlacement& to) const {
    const Home& home = home_[at(id)];
    const ValueInfo& whole = from_.value(id);
    ShardPlacement from = home.at;
    if (is_state(id)) return home.decided ? (from == to ? 0 : kImpossible) : price_of_state(whole, to);
    if (is_param(id) && !home.decided) {
      if (from.is_split() && !(to.is_split() && to.dim == from.dim)) return kImpossible;
      if (to.is_split() && (home.annotation == nullptr || home.annotation->dim == to.dim))
        return to.cut.extent() == whole.shape.dim(to.dim) && to.cut.divides(axis_.ranks) &&
                       (to.dim == 0 || !to.cut.repeats(axis_.ranks))
                   ? 0
                   : kImpossible;
    }
    if (is_param(id) && home.annotation != nullptr && home.annotation->gathered && to.is_split())
      return kImpossible;
    if (to.kind == ShardPlacement::Kind::partial && from != to && !is_param(id)) return kImpossible;
    const auto steps = detail::conversion(from, to, whole.shape, axis_);
    return steps ? detail::bytes_of(*steps, whole, has_grad_[at(id)], axis_.ranks) : kImpossible;
  }

  /// Whether a strategy splits nothing that is not split already, or that is annotated to be.
  bool is_forced(const Instr& instr, const ShardStrategy& strategy, const ShardAnnotation* result) const {
    const auto holds = [&](ValueId id, const ShardPlacement& wanted) {
      const ShardPlacement& is = home_[at(id)].at;
      return wanted.is_split() ? is.is_split() && is.dim == wanted.dim : is.kind == wanted.kind;
    };
    bool splits = false, holds_any = false;
    for (std::size_t i = 0; i < instr.in.size(); ++i) {
      if (instr.in[i] == kNoValue) continue;
      const ShardPlacement& wanted = strategy.in[i];
      if (!wanted.is_split() && wanted.kind != ShardPlacement::Kind::partial) continue;
      splits = true;
      holds_any = holds_any || holds(instr.in[i], wanted);
    }
    return !splits || holds_any ||
           (result != nullptr && result->dim >= 0 && strategy.out.is_split() &&
            result->dim == strategy.out.dim);
  }

  /// The work of a rank, as the bytes that could be exchanged meanwhile.
  double work_bytes(const Instr& instr, const ShardStrategy& strategy) const {
    const bool splits = std::any_of(strategy.in.begin(), strategy.in.end(), [](const ShardPlacement& in) {
      return in.is_split() || in.kind == ShardPlacement::Kind::partial;
    });
    const double passes = has_grad_[at(instr.out[0])] ? 3 : 1;
    return passes * flops(from_, instr) / kFlopsPerByte / (splits ? axis_.ranks : 1);
  }

  double price(const Instr& instr, const ShardStrategy& strategy, const ShardAnnotation* result) const {
    if (!is_forced(instr, strategy, result)) return kImpossible;
    double bytes = strategy.bytes + work_bytes(instr, strategy);
    for (std::size_t i = 0; i < instr.in.size(); ++i)
      if (instr.in[i] != kNoValue) bytes += price(instr.in[i], strategy.in[i]);
    const ValueInfo& whole = from_.value(instr.out[0]);
    const std::optional<ShardPlacement> wanted = placement_of(result, whole, strategy.out);
    if (!wanted) return bytes;
    const auto steps = detail::conversion(strategy.out, *wanted, whole.shape, axis_);
    return steps ? bytes + detail::bytes_of(*steps, whole, has_grad_[at(instr.out[0])], axis_.ranks)
                 : kImpossible;
  }

  /// Where an activation that is at `out` has to be for an annotation, if it is elsewhere. Columns may be cut
  /// in any way, as heads are.
  std::optional<ShardPlacement> placement_of(const ShardAnnotation* annotation, const ValueInfo& whole,
                                             const ShardPlacement& out) const {
    if (annotation == nullptr) return std::nullopt;
    if (annotation->dim == 1 && out.is_split() && out.dim == 1) return std::nullopt;
    if (annotation->dim < 0) return ShardPlacement::replicated();
    const std::int64_t extent = whole.shape.dim(annotation->dim);
    return ShardPlacement::split(annotation->dim, annotation->dim == 0
                                                      ? axis_.cut_of_rows(extent)
                                                      : Cut::nearly_even(extent, axis_.ranks));
  }

  Choice choose(const Instr& instr, const ShardAnnotation* result) const {
    const std::vector<const ValueInfo*> in = value_infos(from_, instr.in);
    std::vector<const ShardPlacement*> placed;
    for (const ValueId id : instr.in)
      placed.push_back(id == kNoValue || (is_stored(id) && !home_[at(id)].at.is_split()) ? nullptr
                                                                                         : &home_[at(id)].at);
    const ValueInfo& out = from_.value(instr.out[0]);
    std::vector<ShardStrategy> strategies;
    if (const auto rule = op_def(instr.op).shard; rule != nullptr)
      strategies = rule({in, placed, out, wanted_[at(instr.out[0])], instr.attrs, axis_});
    strategies.push_back({std::vector<ShardPlacement>(in.size()), ShardPlacement::replicated()});
    Choice best;
    for (ShardStrategy& strategy : strategies)
      if (const double bytes = price(instr, strategy, result); bytes < best.bytes)
        best = {std::move(strategy), bytes};
    return best;
  }

  /// "x split 0 (8 x 1), weight replicated", for messages.
  std::string placements_of(const Instr& instr) const {
    std::string text;
    for (const ValueId id : instr.in)
      if (id != kNoValue)
        text += str(text.empty() ? "" : ", ", from_.value(id).name, " ", to_string(from_.value(id).shape),
                    " ", to_string(home_[at(id)].at));
    return text;
  }

  Status check_annotated_params(const Instr& instr, const Choice& choice) const {
    for (std::size_t i = 0; i < instr.in.size(); ++i) {
      const ValueId id = instr.in[i];
      if (id == kNoValue || !is_param(id) || home_[at(id)].decided || home_[at(id)].annotation == nullptr)
        continue;
      const ShardAnnotation& annotation = *home_[at(id)].annotation;
      const bool suits = choice.bytes < kImpossible &&
                         (annotation.dim < 0 ||
                          (choice.strategy.in[i].is_split() && choice.strategy.in[i].dim == annotation.dim));
      if (!suits)
        return Status::error(
            Code::invalid, str(detail::to_string(annotation), " does not suit ", op_name(instr.op),
                               ", whose operands are ", placements_of(instr), ", on ", axis_.ranks, " ranks",
                               choice.bytes < kImpossible ? str("; it would need ", from_.value(id).name, " ",
                                                                to_string(choice.strategy.in[i]))
                                                          : std::string()));
    }
    if (choice.bytes < kImpossible) return {};
    return Status::error(Code::invalid,
                         str("it cannot run on ", axis_.ranks, " ranks with ", placements_of(instr)));
  }

  Status add(const Instr& instr, const ShardAnnotation* result) {
    const Choice choice = choose(instr, result);
    STRATA_TRY(check_annotated_params(instr, choice));
    const ShardStrategy& strategy = choice.strategy;
    Instr own = instr;
    if (strategy.attrs) own.attrs = *strategy.attrs;
    for (std::size_t i = 0; i < own.in.size(); ++i)
      if (instr.in[i] != kNoValue) own.in[i] = placed(instr.in[i], strategy.in[i], instr);
    if (strategy.lower != nullptr)
      lower(instr, own, strategy);
    else
      STRATA_TRY(add_on_shards(instr, std::move(own)));
    home_[at(instr.out[0])].at = strategy.out;
    if (const auto wanted = placement_of(result, from_.value(instr.out[0]), strategy.out)) {
      id_[at(instr.out[0])] = placed(instr.out[0], *wanted, instr);
      home_[at(instr.out[0])].at = *wanted;
    }
    return {};
  }

  Status add_on_shards(const Instr& instr, Instr own) {
    STRATA_TRY_ASSIGN(const std::vector<OutputSpec> specs, infer_outputs(to_, own));
    for (std::size_t k = 0; k < own.out.size(); ++k) {
      if (instr.out[k] == kNoValue) continue;
      ValueInfo info = from_.value(instr.out[k]);
      info.shape = specs[k].shape;
      own.out[k] = id_[at(instr.out[k])] = to_.add_value(std::move(info));
    }
    to_.code.push_back(std::move(own));
    return {};
  }

  void lower(const Instr& instr, const Instr& own, const ShardStrategy& strategy) {
    lowered_ = &instr;
    const std::vector<ValueId> results = strategy.lower(own, axis_, *this);
    for (std::size_t k = 0; k < results.size(); ++k) {
      id_[at(instr.out[k])] = results[k];
      to_.values[at(results[k])].name = from_.value(instr.out[k]).name;
    }
  }
  std::vector<ValueId> add(Op op, std::vector<ValueId> in, const Attrs& attrs) override {
    Instr instr{op, std::move(in), {}, attrs, 0, lowered_->region, false};
    const auto specs = infer_outputs(to_, instr);
    STRATA_ASSERT(specs.has_value(), op_name(op), ": ", specs.status().message());
    for (const OutputSpec& spec : *specs)
      instr.out.push_back(strata::add_output(to_, from_.value(lowered_->out[0]).name, spec));
    to_.code.push_back(instr);
    return instr.out;
  }
  std::int32_t new_number() override { return next_number_++; }

  void decide(ValueId id, const ShardPlacement& to) {
    Home& home = home_[at(id)];
    home.decided = true;
    if (to.is_split() && (home.annotation == nullptr || home.annotation->dim == to.dim)) home.at = to;
    if (!home.at.is_split()) return;
    Shape& shape = to_.values[at(id_[at(id)])].shape;
    shape.dims[static_cast<std::size_t>(home.at.dim)] = home.at.cut.shard_extent(axis_.ranks, axis_.rank);
    if (is_state(id)) return;
    to_.params[static_cast<std::size_t>(from_.value(id).param)].shape = shape;
  }

  /// The value in that placement, for a reader of the region of `reader`.
  ValueId placed(ValueId id, const ShardPlacement& to, const Instr& reader) {
    if (is_stored(id) && !home_[at(id)].decided) decide(id, to);
    const ShardPlacement& from = home_[at(id)].at;
    if (from == to) return is_param(id) && from.cut.repeats(axis_.ranks) ? shared(id, reader) : id_[at(id)];
    const auto steps = detail::conversion(from, to, from_.value(id).shape, axis_);
    STRATA_ASSERT(steps.has_value(), "no way from ", to_string(from), " to ", to_string(to));
    // A copy lives no longer than the region that reads it, except one of a parameter that takes no memory.
    const bool takes_memory = std::any_of(steps->begin(), steps->end(), [](const ConversionStep& step) {
      return !op_def(step.op).is_identity;
    });
    const Key key{id, is_param(id) && !takes_memory ? -1 : reader.region, static_cast<int>(to.kind), to.dim};
    std::vector<Placed>& known = placed_[key];
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const Placed& each) { return each.cut == to.cut; });
    if (found != known.end()) return found->value;
    ValueId value = id_[at(id)];
    for (const ConversionStep& step : *steps) {
      if (step.op == Op::copy_to_ranks && !has_grad_[at(id)]) continue;
      value = append(step.op, step.attrs, value, id, reader);
    }
    placed_[key].push_back({to.cut, value});
    return value;
  }

  /// A parameter of which neighbours have the same rows, for readers that compute a part of their gradient.
  ValueId shared(ValueId id, const Instr& reader) {
    if (!has_grad_[at(id)]) return id_[at(id)];
    const ShardPlacement& is = home_[at(id)].at;
    std::vector<Placed>& known = placed_[Key{id, -1, static_cast<int>(is.kind), is.dim}];
    if (!known.empty()) return known.front().value;
    ValueId value = id_[at(id)];
    const std::vector<CutRun> runs = runs_of(is.cut, axis_.ranks, axis_.rank);
    for (std::size_t s = 0; s < runs.size(); ++s) {
      const std::int64_t units = is.cut.segment[s].units;
      if (units >= axis_.ranks) continue;
      const CollectiveAttrs attrs = {.axis = axis_.number,
                                     .ranks = axis_.ranks,
                                     .rank = axis_.rank,
                                     .group = static_cast<std::int32_t>(axis_.ranks / units),
                                     .first_row = runs[s].shard,
                                     .rows = runs[s].n};
      value = append(Op::share_rows, attrs, value, id, reader);
    }
    known.push_back({is.cut, value});
    return value;
  }

  ValueId append(Op op, const Attrs& attrs, ValueId operand, ValueId whole, const Instr& reader) {
    Instr instr{op, {operand}, {}, attrs, 0, reader.region, false};
    const auto specs = infer_outputs(to_, instr);
    STRATA_ASSERT(specs.has_value(), op_name(op), ": ", specs.status().message());
    const ValueId out = strata::add_output(to_, from_.value(whole).name, specs->front());
    instr.out = {out};
    to_.code.push_back(std::move(instr));
    return out;
  }

  Status add_output(ValueId id) {
    if (!detail::conversion(home_[at(id)].at, {}, from_.value(id).shape, axis_))
      return Status::error(Code::invalid, str("output ", from_.value(id).name, " cannot be made whole from ",
                                              to_string(home_[at(id)].at)));
    const ValueId own = id_[at(id)], whole = placed(id, {}, to_.code.back());
    if (own != whole) std::swap(to_.values[at(own)].name, to_.values[at(whole)].name);
    to_.outputs.push_back(whole);
    return {};
  }

  void set_parts() {
    for (ParamInfo& param : to_.params) {
      const ParamInfo& whole = from_.params[static_cast<std::size_t>(&param - to_.params.data())];
      const Home& home = home_[at(whole.value)];
      if (!param.part.is_shared()) param.part = TensorPart::all_of(whole.shape);
      if (home.at.is_split() && home.decided)
        param.part.cut(home.at.dim, home.at.cut, axis_.ranks, axis_.rank);
      else
        param.part.replicate(axis_.rank);
    }
  }

  using Key = std::array<int, 4>;  // value, region, kind, dimension
  const Program& from_;
  const ShardAxis& axis_;
  const Annotated annotated_;
  const std::vector<Cut> wanted_;
  const std::vector<bool> has_grad_;
  std::vector<Home> home_;   // indexed by value of the whole program
  std::vector<ValueId> id_;  // the same value of the rank's program, in its home placement
  struct Placed {
    Cut cut;
    ValueId value;
  };
  std::map<Key, std::vector<Placed>> placed_;  // the values that others were converted to
  Program to_;
  const Instr* lowered_ = nullptr;  // the instruction in whose place others are added
  std::int32_t next_number_ = 0;
};

}  // namespace

Result<Program> partition(const Program& program, const ShardAxis& axis,
                          std::span<const ShardAnnotation> annotations, const Program* like) {
  if (axis.ranks < 1 || axis.rank < 0 || axis.rank >= axis.ranks)
    return Status::error(Code::invalid,
                         str("rank ", axis.rank, " of ", axis.ranks, " along axis ", axis.name));
  STRATA_TRY_ASSIGN(Annotated annotated, detail::match_annotations(program, annotations));
  std::deque<ShardAnnotation> of_like;
  if (like != nullptr) of_like = detail::annotate_like(program, *like, annotated);
  return Partitioner(program, axis, std::move(annotated)).run();
}

}  // namespace strata
