#pragma once

#include <span>
#include <string>

#include <strata/runtime/io/io.h>

namespace strata {

struct LoadedConfig;

/// Makes `out` a run whose only checkpoint is average_checkpoints() of `checkpoints` of the run in `run`,
/// with its tokenizer and its configuration `loaded`, whose checkpoint.dir has to be empty: it can be
/// evaluated, exported, continued. Returns the path of the checkpoint. Errors: `invalid` if `out` already has
/// a run; those of average_checkpoints().
Result<std::string> average_run(Io& io, const std::string& run, const LoadedConfig& loaded,
                                std::span<const std::string> checkpoints, const std::string& out);

}  // namespace strata
