#pragma once

#include <cstdint>

#include <strata/graph/pipeline.h>

namespace strata {

struct TrainConfig;

/// The schedule that parallel.schedule names (while it is `auto`, one that allows parallel.virtual_stages),
/// or that the file of that name contains, for parallel.pp ranks and the micro-batches of a copy of the
/// model. Errors: those of make_pipeline_schedule() and parse_pipeline_schedule(); `invalid` for a file's
/// schedule of other ranks or micro-batches; `io_error`.
Result<PipelineSchedule> pipeline_schedule(const TrainConfig& config);
/// parallel.virtual_stages; while it is `auto`: 2 for interleaved and breadth-first, else 1.
std::int32_t virtual_stages(const TrainConfig& config) noexcept;

}  // namespace strata
