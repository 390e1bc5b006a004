#pragma once

#include <cstdint>

#include <strata/kernels/align/loss_options.h>
#include <strata/model/decoder_config.h>
#include <strata/runtime/dtype.h>
#include <strata/runtime/status.h>

// Programs of a policy, its critic, and what they are compared with. All of them read the same packed rows,
// so that log-probabilities of one model are those of another program with the same parameters, to the bit.

namespace strata {

struct Program;

/// Settings of programs over sampled answers: rows of a micro-batch; the temperature at which tokens were
/// sampled, by which logits are divided; and whether the parameters that a step trains are still those that
/// sampled its answers.
struct PolicyProgram {
  std::int64_t batch = 1;
  float temperature = 1;
  bool on_policy = false;
};

/// Forward of a policy or a reference: inputs of packed rows and "targets" [T] i32 (T = batch * seq), outputs
/// "log_probs" [T] f32 of the targets, 0 where they are ignored, and with `entropy` "entropies" [T].
Result<Program> record_log_probs(const DecoderConfig& config, const PolicyProgram& policy, bool entropy,
                                 DType compute = DType::f32);
/// The loss of a policy (PolicyLossArgs): besides those, inputs "old_log_probs", "advantages", "weights" and,
/// with a KL coefficient, "reference" [T] f32, and "divisor" [1]; outputs "loss", "stats" [6] and "log_probs"
/// [T]. On-policy, its own log-probabilities are the old ones, and it has "entropies" [T], too.
Result<Program> record_policy_loss(const DecoderConfig& config, const PolicyProgram& policy,
                                   const kernels::PolicyLossOptions& options, DType compute = DType::f32);

/// The score of each token by kScoreWeight: a reward model, or a critic. Inputs of packed rows, output
/// "scores" [T] f32.
Result<Program> record_token_scores(const DecoderConfig& config, std::int64_t batch,
                                    DType compute = DType::f32);
/// The loss of a critic (ValueLossArgs): besides those, inputs "old_values", "returns" and "weights" [T] f32,
/// and "divisor" [1]; outputs "loss" and "stats" [4].
Result<Program> record_value_loss(const DecoderConfig& config, std::int64_t batch,
                                  const kernels::ValueLossOptions& options, DType compute = DType::f32);

}  // namespace strata
