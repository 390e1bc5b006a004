#pragma once

#include <string>
#include <vector>

#include <strata/batches/training_data.h>

namespace strata {

struct LoadedConfig;
struct TrainConfig;

/// Decides what depends on the data and is open: data.packing, model.seq, train.steps by train.epochs, and
/// optim.warmup.
void decide_by_data(LoadedConfig& loaded, const TrainingData& data);

/// Says what a run reads, and how often: "40 conversations, 12,292 tokens, longest 346; 15 steps of 4,096
/// tokens are 3 epochs".
std::string run_length_text(const TrainConfig& config, const TrainingData& data);
/// Warns of what is probably not meant: many passes over the data, documents that are split, or a learning
/// rate far from what is usual for fine-tuning.
std::vector<std::string> run_length_warnings(const TrainConfig& config, const TrainingData& data);

}  // namespace strata
