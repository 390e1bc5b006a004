#pragma once

#include <deque>
#include <span>
#include <vector>

#include <strata/graph/program.h>
#include <strata/graph/shard_annotation.h>

namespace strata::detail {

/// The annotation of each parameter, and of each instruction's first result; null: none.
struct Annotated {
  std::vector<const ShardAnnotation*> params, results;
};
/// Errors: `invalid`, all problems at once: a pattern that matches nothing, a dimension that a value lacks,
/// two annotations of one value that differ.
Result<Annotated> match_annotations(const Program& program, std::span<const ShardAnnotation> annotations);
/// Annotations of the parameters that have none in `annotated`, which has pointers to them: as in `like`, a
/// part of another program with the same parameters.
std::deque<ShardAnnotation> annotate_like(const Program& program, const Program& like, Annotated& annotated);
/// "PATTERN 0", for messages.
std::string to_string(const ShardAnnotation& annotation);
/// "<region>/<op>", by which annotations name the first result of an instruction.
std::string activation_name(const Program& program, const Instr& instr);

}  // namespace strata::detail
