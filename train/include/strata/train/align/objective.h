#pragma once

#include <cstdint>

#include <strata/model/align/pairs.h>
#include <strata/model/documents.h>
#include <strata/model/pair_dataset.h>
#include <strata/model/tokenizer.h>
#include <strata/train/train_config.h>

// What a run learns (train.objective), apart from the next token.

namespace strata {

/// Whether the run learns from pairs of answers.
bool compares_pairs(const TrainConfig& config);
/// Whether it compares the model with the one that the run starts from.
bool has_reference(const TrainConfig& config);
/// Whether the model gives a score instead of tokens.
bool is_reward_model(const TrainConfig& config);
/// Which records its data consists of.
RecordUse record_use(const TrainConfig& config);

/// Of a run that compares pairs: its programs, and how its data are packed.
PairProgram pair_program(const TrainConfig& config);
PairOptions pair_options(const TrainConfig& config, SampleOrder order, const Tokenizer& tokenizer);

/// The program of a run with a reference that computes what its pairs are compared with
/// (ProgramRole::forward).
inline constexpr const char* kReferenceProgram = "reference";

}  // namespace strata
