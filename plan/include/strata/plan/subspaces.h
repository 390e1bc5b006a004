#pragma once

#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/adapter/galore.h>
#include <strata/model/decoder_config.h>
#include <strata/session/session_options.h>

// Training of matrices in subspaces of their gradients: optim.name = galore.

namespace strata {

struct TrainConfig;

/// The settings of optim.galore_rank and optim.galore_targets.
GaloreSettings galore_settings(const TrainConfig& config);
/// The matrices that the run trains in subspaces, each with its factors; none unless optim.name is galore.
/// Those that train.freeze names are not among them. Errors: `invalid`: those of galore_groups(), a pattern
/// that matches no parameter, or if all matrices are frozen.
Result<std::vector<LoraGroup>> subspace_groups(const TrainConfig& config, const DecoderConfig& decoder);
/// optim.param_groups as the session takes them. A matrix in a subspace is updated through its factor, with
/// optim.galore_scale times the learning rate of the matrix's own group. Errors: `invalid`: those of
/// subspace_groups(), a pattern that matches no parameter, a group with weight decay of such a matrix.
Result<std::vector<ParamGroup>> param_groups(const TrainConfig& config, const DecoderConfig& decoder);
/// Whether a step needs the norm of whole gradients, which no part of a step's micro-batches has.
bool measures_whole_gradients(const TrainConfig& config);

/// The program with the factors of the run's matrices, and without training of what train.freeze names.
/// Errors: those of subspace_groups() and of the passes.
Result<Program> with_subspaces(Program program, const TrainConfig& config, const DecoderConfig& decoder);
/// The program with the parameters that only programs for training use, for a run without one that reads
/// checkpoints of this run; the program itself if there are none. Errors: those of subspace_groups().
Result<Program> with_unread_parameters(Program program, const TrainConfig& config,
                                       const DecoderConfig& decoder);

}  // namespace strata
