#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <strata/graph/pipeline_schedule.h>
#include <strata/graph/program.h>

namespace strata {

/// Flops of each region of a program, forward and backward.
std::vector<double> region_flops(const Program& program);
/// Cuts regions into stages, in their order, so that the slowest stage takes as little as possible; of equal
/// cuts, the one whose first stages have the fewest regions. `costs`: of each region, as measured or
/// region_flops(). What costs nothing belongs to the stage of the region before it, or behind it where it
/// comes first. Errors: `invalid` if fewer regions than stages cost something, or a cost is negative or no
/// number.
Result<std::vector<std::int32_t>> balance_stages(std::span<const double> costs, std::int32_t stages);

/// How long each stage of a program takes for a micro-batch, in ticks of `flops_per_tick`, by what pipeline()
/// counts as forward, input gradient and weight gradient.
std::vector<StageTicks> stage_ticks(const Program& program, std::span<const std::int32_t> stage_of_region,
                                    std::int32_t stages, double flops_per_tick);

/// Where a rank is in a pipeline, and which of several copies of the pipeline it belongs to.
struct PipelineRank {
  std::int32_t axis = 0;  ///< the number by which messages name the axis of the mesh
  std::int32_t rank = 0;
  /// Copies whose gradients are added up micro-batch by micro-batch, in the order of the copies, so that they
  /// have the bits of one rank that computes the copies' k-th micro-batches one after the other, for each k.
  std::int32_t copies_axis = 0;  ///< the number by which their sums name the axis of the mesh
  std::int32_t copies = 1, copy = 0;
};

/// Makes the program that one rank of a pipeline runs in a step, from that of one micro-batch with its
/// derivative (GPipe, Huang et al. 2019, arXiv 1811.06965; PipeDream-Flush, arXiv 2006.09503). It has the
/// micro-batches of the schedule as interleave_micro_batches() has them: inputs of each, and a gradient that
/// is their sum in f32, added up in their order, so that it has the bits of one rank, and over all copies.
/// `stage_of_region`: the stage of each of the program's regions. Values that another rank's stage reads are
/// sent to it, and outputs, once its tasks have ended, to all ranks. All ranks queue their messages in one
/// order, that of a pipeline whose tasks take equally long: so ranks that meet to exchange a message never
/// wait for each other in a circle. What a rank receives, it is ready for one task before it reads it; what
/// it sends, it keeps until the task after has ended. Parameters of other stages have no elements. A
/// trainable one that stages of several ranks read is on all of these: each adds up its own gradients, and in
/// the end sends the sum to the others, which add the ranks' sums in their order (to rounding, then, the
/// gradient of one rank). Errors: `invalid`: a schedule that check() refuses, a region without a stage, a
/// value that a stage reads before it can be there; `unsupported`: a program with several micro-batches.
Result<Program> pipeline(const Program& program, const PipelineSchedule& schedule,
                         std::span<const std::int32_t> stage_of_region, const PipelineRank& rank);

}  // namespace strata
