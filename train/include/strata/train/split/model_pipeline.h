#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/graph/pipeline.h>
#include <strata/train/train_config.h>

namespace strata {

/// The schedule that parallel.schedule names (while it is `auto`, one that allows parallel.virtual_stages),
/// or that the file of that name contains, for parallel.pp ranks and the micro-batches of a copy of the
/// model. Errors: those of make_pipeline_schedule() and parse_pipeline_schedule(); `invalid` for a file's
/// schedule of other ranks or micro-batches; `io_error`.
Result<PipelineSchedule> pipeline_schedule(const TrainConfig& config);
/// parallel.virtual_stages; while it is `auto`: 2 for interleaved and breadth-first, else 1.
std::int32_t virtual_stages(const TrainConfig& config) noexcept;

/// The ranks of a copy of the model as stages of a pipeline: which regions of its programs belong to which
/// stage, and when a rank computes what.
class ModelPipeline {
 public:
  /// Cuts the stages as parallel.stage_layers has them, or so that the slowest one computes as few flops of
  /// `program` as possible. Errors: those of pipeline_schedule() and balance_stages().
  static Result<ModelPipeline> create(const Program& program, const TrainConfig& config);

  /// What this rank runs of a step, from the program of a micro-batch with its derivative. Errors: those of
  /// pipeline().
  Result<Program> training(const Program& program) const;
  /// What it runs of one micro-batch, forward.
  Result<Program> forward(const Program& program) const;

 private:
  PipelineSchedule schedule_;
  std::vector<std::int32_t> stage_of_region_;
  PipelineRank rank_;
};

}  // namespace strata
