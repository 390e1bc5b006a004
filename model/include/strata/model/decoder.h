#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <strata/graph/builder.h>
#include <strata/graph/program.h>
#include <strata/model/decoder_config.h>
#include <strata/runtime/status.h>

namespace strata {

/// The output of the recorded program.
enum class DecoderHead : std::uint8_t {
  loss,    ///< inputs "tokens" and "targets" [batch * seq] i32 and "divisor" [1] f32, output "loss" [1]
  logits,  ///< input "tokens" [batch * seq] i32, output "logits" [batch * seq, vocab]
};
/// Whether a row of seq tokens holds one text or several documents that do not attend to each other.
enum class DecoderRows : std::uint8_t {
  whole,
  packed,  ///< one more input "doc_start" [batch * seq] i32: the position in the row of the first token of
           ///< each token's document
};

/// The output of a program with losses of routers, [2] f32: aux and z, without their coefficients. It has one
/// more input, "loss_factor" [1] f32.
inline constexpr const char* kRouterLossesOutput = "router_losses";

/// The biases by which the routers of its mixtures choose, in their order: parameters [experts], f32 and not
/// trained. None if it has no such biases (ExpertsConfig::choice_bias).
std::vector<std::string> choice_biases(const DecoderConfig& config);

/// Records the forward pass of a decoder over `batch` sequences, computing in `compute`: f32, bf16 or f16.
/// The order of parameters does not depend on the head and the rows; model/README.md, "Parameters", has their
/// names and layouts. Initial values as in GPT-2 (Radford et al. 2019, section 2.3): N(0, 0.02), projections
/// into the residual stream scaled by 1 / sqrt(2 layers). Losses of routers need the head `loss` and a
/// mixture of experts whose scores are softmaxes.
Result<Program> record_decoder(const DecoderConfig& config, std::int64_t batch, DecoderHead head,
                               DecoderRows rows = DecoderRows::whole, DType compute = DType::f32,
                               const RouterLosses& routers = {});

/// The end of a decoder, for callers that record their own outputs: see record_decoder_with().
struct DecoderEnd {
  Builder& builder;
  Value x;                ///< [batch * seq, hidden], after the last norm
  std::int64_t rows = 0;  ///< batch * seq
  std::int64_t hidden = 0;
  /// What the head multiplies, and its matrix [vocab, hidden], which may be that of embeddings.
  std::function<std::pair<Value, Value>()> head;
  float softcap = 0;  ///< the softcap of the logits; 0: none
};
/// The outputs of the program, by name.
using RecordDecoderEnd = std::function<std::vector<std::pair<std::string, Value>>(const DecoderEnd&)>;
/// The same with an end of the caller's, such as a loss of its own. Parameters of the end are registered
/// after those of the model.
Result<Program> record_decoder_with(const DecoderConfig& config, std::int64_t batch, DecoderRows rows,
                                    DType compute, const RecordDecoderEnd& end);

/// Records the forward pass of a decoder with a KV cache, computing in `compute`: f32, bf16 or f16. The keys
/// and values of past tokens are states of the program in that dtype, "layers.N.keys" and "layers.N.values"
/// [sequences, kv_heads, context, head_dim]. Inputs,
/// all i32: "tokens", "positions" (absolute, below context) and "slots" (sequence slot of the cache, -1: no
/// token) [rows], and "logit_indices" [logit_rows], indices of rows. Output: "logits" f32 [logit_rows, vocab]
/// of those rows. Parameters are those of record_decoder(). Programs that differ only in rows and
/// logit_rows have equal states and can share them: one for prefill, one for decoding token by token. Errors:
/// `invalid`, all problems at once.
Result<Program> record_cached_decoder(const DecoderConfig& config, const CacheShape& shape,
                                      DType compute = DType::f32);

}  // namespace strata
