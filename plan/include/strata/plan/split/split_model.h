#pragma once

#include <span>

#include <strata/graph/program.h>

namespace strata {

struct LoadedConfig;
struct TrainConfig;

/// Replaces the programs of a model by those of this rank, if ranks share the model; the first one decides
/// where parameters are that no annotation places. Run it before the derivative is taken. Errors: those of
/// split_annotations() and partition().
Status split_among_ranks(std::span<Program> programs, const TrainConfig& config, bool tied_head);

/// Ranks that share the model, if the command line asks for a layout; else 1: a run that several ranks
/// trained is evaluated and continued by one.
int ranks_asked_for(const LoadedConfig& loaded);

}  // namespace strata
