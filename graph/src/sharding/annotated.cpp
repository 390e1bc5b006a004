#include "sharding/annotated.h"

#include <algorithm>

#include <strata/graph/op_list.h>
#include <strata/runtime/config/match_names.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/str.h>

namespace strata::detail {

std::string to_string(const ShardAnnotation& annotation) {
  return annotation.dim < 0
             ? str("'", annotation.pattern, " whole'")
             : str("'", annotation.pattern, annotation.gathered ? " gather-" : " ", annotation.dim, "'");
}
std::string activation_name(const Program& program, const Instr& instr) {
  return str(program.regions[static_cast<std::size_t>(instr.region)].name, "/", op_name(instr.op));
}

std::deque<ShardAnnotation> annotate_like(const Program& program, const Program& like, Annotated& annotated) {
  std::deque<ShardAnnotation> made;
  for (std::size_t p = 0; p < program.params.size(); ++p) {
    const ParamInfo& param = program.params[p];
    const auto other = std::find_if(like.params.begin(), like.params.end(),
                                    [&](const ParamInfo& each) { return each.name == param.name; });
    if (annotated.params[p] != nullptr || other == like.params.end()) continue;
    int split = -1;
    for (int dim = 0; dim < param.shape.rank; ++dim)
      if (param.shape.dim(dim) != other->shape.dim(dim)) split = dim;
    made.push_back({param.name, split});
    annotated.params[p] = &made.back();
  }
  return made;
}

namespace {

/// The objects that annotations can name: parameters, and instructions by the names of their first results.
struct Named {
  std::vector<std::string> names;
  std::vector<std::size_t> target;  // the target of each name: a parameter, or behind them an instruction

  void add(std::string name, std::size_t at) {
    names.push_back(std::move(name));
    target.push_back(at);
  }
};
Named named(const Program& program) {
  Named all;
  const std::size_t n = program.params.size();
  for (std::size_t p = 0; p < n; ++p) all.add(program.params[p].name, p);
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instr& instr = program.code[i];
    all.add(activation_name(program, instr), n + i);
    for (const ValueId id : instr.in)
      if (id != kNoValue && program.value(id).kind == ValueKind::param) {
        const std::string& name = program.params[static_cast<std::size_t>(program.value(id).param)].name;
        all.add(str(name.substr(0, name.rfind('.')), "/", op_name(instr.op)), n + i);
        break;
      }
  }
  return all;
}

}  // namespace

Result<Annotated> match_annotations(const Program& program, std::span<const ShardAnnotation> annotations) {
  const Named all = named(program);
  std::vector<const ValueInfo*> values;
  for (const ParamInfo& param : program.params) values.push_back(&program.value(param.value));
  for (const Instr& instr : program.code) values.push_back(&program.value(instr.out[0]));
  std::vector<const ShardAnnotation*> of(values.size(), nullptr);
  ErrorList bad, unmatched;
  bool any = false;
  for (const ShardAnnotation& annotation : annotations) {
    const auto matches = match_names(all.names, std::span(&annotation.pattern, 1), "parallel.shard");
    (annotation.optional ? unmatched : bad).add(matches.status());
    if (!matches.has_value()) continue;
    any = true;
    for (std::size_t i = 0; i < all.names.size(); ++i) {
      if ((*matches)[i] < 0) continue;
      const std::size_t at = all.target[i];
      if (annotation.dim >= values[at]->shape.rank)
        bad.add(
            Status::error(Code::invalid, str(to_string(annotation), " splits a dimension that ", all.names[i],
                                             " ", strata::to_string(values[at]->shape), " does not have")));
      else if (of[at] != nullptr &&
               (of[at]->dim != annotation.dim || of[at]->gathered != annotation.gathered))
        bad.add(Status::error(Code::invalid, str(all.names[i], " has two placements: ", to_string(*of[at]),
                                                 " and ", to_string(annotation))));
      else
        of[at] = &annotation;
    }
  }
  if (!any) bad.add(unmatched.status());
  STRATA_TRY(bad.status());
  const auto params = static_cast<std::ptrdiff_t>(program.params.size());
  return Annotated{{of.begin(), of.begin() + params}, {of.begin() + params, of.end()}};
}

}  // namespace strata::detail
