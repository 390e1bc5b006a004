#pragma once

#include <strata/engine/engine.h>
#include <strata/graph/passes.h>
#include <strata/model/adapter/adapter.h>
#include <strata/plan/activation_choices.h>

namespace strata {

struct TrainConfig;

/// Applies the passes that depend on the configuration: FP8 GEMMs if train.fp8 is set, additions fused with
/// norms and, on a GPU, the attention backend of train.attention_backend and GEMM workspaces.
Program specialize_for_backend(Program program, const TrainConfig& config);
/// The program with the run's adapters, and all other parameters frozen, or with its subspaces (subspaces.h);
/// the program itself if it has neither. Errors: those of add_adapter(), quantize_weights() and
/// with_subspaces().
Result<Program> with_adapters(Program program, const TrainConfig& config, const DecoderConfig& decoder,
                              AdapterUse use = AdapterUse::inference);
/// Records the model's loss of a micro-batch, without the passes of specialize_for_backend().
Result<Program> record_evaluation(const TrainConfig& config);
/// Records what the reference of DPO gives the pairs of a micro-batch, kReferenceProgram.
Result<Program> record_reference(const TrainConfig& config);
/// Records what a rank that has all stages of a pipeline computes of a micro-batch, with its derivative.
Result<Program> record_micro_batch(const TrainConfig& config, const ActivationChoice& activations);
/// Records the model for a micro-batch and applies specialize_for_backend(): training with backward,
/// validation, and inference of one sequence.
Result<ProgramSet> record_programs(const TrainConfig& config, const ActivationChoice& activations);

}  // namespace strata
