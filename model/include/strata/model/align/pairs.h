#pragma once

#include <cstdint>

#include <strata/model/decoder_config.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

// Programs that compare pairs of documents, packed as PairDataset does.

namespace strata {

struct Program;

/// The head of a reward model, [1, hidden]: as "score" of LlamaForSequenceClassification and the like.
inline constexpr const char* kScoreWeight = "score.weight";

/// The objective that is computed from the two documents of a pair.
enum class PairObjective : std::uint8_t {
  reward,  ///< the score of a document's last token, by kScoreWeight, which is higher for the chosen one
           ///< (Ouyang et al. 2022, arXiv 2203.02155, equation 1)
  dpo,     ///< the log-probability of its answer beside that under the reference (Rafailov et al. 2023, arXiv
           ///< 2305.18290)
  ipo,     ///< the mean log-probability of the answer's tokens, likewise (Azar et al. 2023, arXiv 2310.12036)
};

struct PairProgram {
  PairObjective objective = PairObjective::dpo;
  std::int64_t batch = 1;      ///< rows of a micro-batch
  std::int32_t max_pairs = 1;  ///< pairs of a micro-batch
  float beta = 0.1f;           ///< used by dpo and ipo
  float label_smoothing = 0;   ///< used by dpo
};
/// Records the forward pass of the model and the loss of pairs. Inputs: those of packed rows, "segments"
/// [batch * seq] i32, "weights" [max_pairs] f32, "divisor" [1] f32; of dpo and ipo "targets" [batch * seq]
/// i32 and "reference" [2 max_pairs] f32, which is what record_pair_scores() computes of the reference.
/// Outputs: "loss" [1] and "stats" [4] (PairLossArgs). Errors: those of record_decoder().
Result<Program> record_pair_loss(const DecoderConfig& config, const PairProgram& pairs,
                                 DType compute = DType::f32);
/// The same up to the scores: output "scores" [2 max_pairs] f32, of the chosen and the rejected document of
/// each pair; 0 where there is no pair.
Result<Program> record_pair_scores(const DecoderConfig& config, const PairProgram& pairs,
                                   DType compute = DType::f32);

}  // namespace strata
