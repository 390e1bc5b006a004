#pragma once

#include <string>
#include <vector>

#include <strata/graph/passes.h>
#include <strata/model/decoder_config.h>

#include "engine/rank_run.h"

namespace strata::test {

/// A run whose ranks share the model, by presets along axes.
struct SplitCase {
  std::string family = "gpt2";
  std::vector<std::string> shard = {};
  std::int32_t tp = 1, tp2 = 1, tp3 = 1, cp = 1;
  std::int32_t pp = 1, virtual_stages = 1;
  std::string schedule = "1f1b";
  std::int32_t copies = 1, zero = 0, shard_ranks = 0;
  GradientReduce reduce = GradientReduce::each;
  StepMode mode = StepMode::two_phase;
  DType compute = DType::f32;
  Recompute recompute = Recompute::none;
  double clip = 0.5;
  int steps = 4;
  /// Homes of a chunk's payloads on a rank; null: those that the planner chooses.
  void (*assign_homes)(const ChunkLayout& layout, Placement& placement) = nullptr;
  bool ranks_differ = false;  ///< only odd ranks have these homes

  std::int32_t sharing() const noexcept { return pp * tp * tp2 * tp3 * cp; }
  std::int32_t ranks() const noexcept { return sharing() * copies; }
  bool in_threes() const noexcept { return sharing() / pp % 3 == 0; }
  std::int32_t layers() const noexcept { return std::max(2, pp * virtual_stages); }
};

inline constexpr std::int64_t kSplitVocab = 47, kSplitSequences = 4;
inline constexpr std::int32_t kSplitGradAccum = 4;

/// Heads enough for eight ranks, or for three; two of the families have fewer key heads. No ranks divide the
/// vocabulary.
DecoderConfig split_model(std::string_view family, bool in_threes);

/// The programs of a rank.
Result<ProgramSet> split_programs(const DecoderConfig& model, const SplitCase& c, std::int32_t rank);
Result<ProgramSet> split_programs(const SplitCase& c, std::int32_t rank);

/// The same model on one rank.
Result<std::unique_ptr<const RunPlan>> plan_alone(SplitCase c, const std::string& dir);
Result<std::unique_ptr<const RunPlan>> plan_split(const SplitCase& c, std::int32_t rank,
                                                  const std::string& dir);
/// Chunks of all tiers.
void mixed_homes(const ChunkLayout& layout, Placement& placement);

/// Adds the states of this rank's parts of the model's tensors.
Status collect_parts(Engine& engine, RankOutcome& outcome);
Status train_split(Engine& engine, RankOutcome& outcome, int steps);
RankOutcome run_split(const SplitCase& c, const RankBody& body);
RankOutcome train_split(const SplitCase& c);

}  // namespace strata::test
