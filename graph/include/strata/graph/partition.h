#pragma once

#include <span>

#include <strata/graph/shard_annotation.h>
#include <strata/graph/shard_placement.h>
#include <strata/graph/program.h>

namespace strata {

/// Makes the program of one rank along an axis of the mesh: its parameters are the rank's parts (Xu et al.
/// 2021, arXiv 2105.04663; Megatron-LM's tensor and sequence parallelism, arXiv 1909.08053 and 2205.05198,
/// are annotations of it). What is not annotated is placed in program order where an instruction needs the
/// fewest bytes to be exchanged, forward and backward together, and has the least to compute; a value that no
/// annotation splits and no split operand forces to be split stays whole. Where a value is needed in another
/// placement, a collective or a local copy is inserted, once for all readers. Inputs and outputs stay whole.
/// Run it before derive_backward(): the derivative of a collective is a collective. Several axes are
/// partitioned one after the other. `like`: the rank's part of another program of the model, as whose
/// parameters those without an annotation are placed. Errors: `invalid`: an annotation that matches nothing
/// or two that contradict each other, with both; an extent that the ranks cannot share out; an op that cannot
/// run with the annotated placements, with these.
Result<Program> partition(const Program& program, const ShardAxis& axis,
                          std::span<const ShardAnnotation> annotations, const Program* like = nullptr);

/// Removes the local copies that partition() inserts where ranks compute parts of a gradient, which are
/// needed to derive it, and not afterwards; and where a sum along one axis is scattered along another one,
/// scatters first, so that fewer bytes are summed.
Program simplify_collectives(Program program);

/// Bytes that a rank sends for the collectives of one pass of a program.
double exchanged_bytes(const Program& program);

}  // namespace strata
