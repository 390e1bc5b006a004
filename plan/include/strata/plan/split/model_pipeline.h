#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/graph/pipeline.h>
#include <strata/config/pipeline_schedule.h>

namespace strata {

struct TrainConfig;

/// The ranks of a copy of the model as stages of a pipeline: which regions of its programs belong to which
/// stage, and when a rank computes what.
class ModelPipeline {
 public:
  /// Cuts the stages as parallel.stage_layers has them, or so that the slowest one computes as few flops of
  /// `program` as possible. Errors: those of pipeline_schedule() and balance_stages().
  static Result<ModelPipeline> create(const Program& program, const TrainConfig& config);

  /// The program that this rank runs in a step, from the program of a micro-batch with its derivative.
  /// Errors: those of pipeline().
  Result<Program> training(const Program& program) const;
  /// The program that this rank runs for the forward pass of one micro-batch.
  Result<Program> forward(const Program& program) const;

 private:
  PipelineSchedule schedule_;
  std::vector<std::int32_t> stage_of_region_;
  PipelineRank rank_;
};

}  // namespace strata
