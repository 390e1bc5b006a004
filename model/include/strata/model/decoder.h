#pragma once

#include <cstdint>
#include <string>

#include <strata/graph/program.h>
#include <strata/runtime/status.h>

namespace strata {

/// The shape of a decoder-only transformer. Families are values of this; there is no code per family.
struct DecoderConfig {
  std::string family = "gpt2";  ///< LayerNorm before, learned positions, GELU (tanh), fused qkv, tied head
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t ffn = 0;  ///< inner width of the MLP
  std::int64_t vocab = 0;
  std::int64_t seq = 0;  ///< positions
  float norm_eps = 1e-5f;
};
/// All problems at once, each naming the key and both numbers. Errors: `invalid`.
Status validate(const DecoderConfig& config);
/// Parameters of the model, tied ones counted once.
std::int64_t count_parameters(const DecoderConfig& config);

/// What the recorded program ends in.
enum class DecoderHead : std::uint8_t {
  loss,    ///< inputs "tokens" and "targets" [batch * seq] i32, output "loss" [1]
  logits,  ///< input "tokens" [batch * seq] i32, output "logits" [batch * seq, vocab]
};

/// Records the forward of a decoder over `batch` sequences. Parameters come in the same order whatever the
/// head. Names are those of Hugging Face's GPT-2; weights are [out, in]. Initial values as in GPT-2 (Radford
/// et al. 2019, section 2.3): N(0, 0.02), projections into the residual stream scaled by 1 / sqrt(2 layers).
Result<Program> record_decoder(const DecoderConfig& config, std::int64_t batch, DecoderHead head);

}  // namespace strata
