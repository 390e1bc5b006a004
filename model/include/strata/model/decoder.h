#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/graph/program.h>
#include <strata/runtime/status.h>

namespace strata {

/// The shape of a decoder-only transformer. Families are values of this; there is no code per family. The
/// defaults are GPT-2's; decoder_for_family() gives those of the others.
struct DecoderConfig {
  enum class Norm : std::uint8_t { layer, rms };
  enum class Position : std::uint8_t { learned, rope, alibi };
  enum class Mlp : std::uint8_t { gelu, relu, swiglu, geglu };
  enum class QkNorm : std::uint8_t {
    none,
    heads,  ///< RMSNorm of every query and key head (Qwen3, Gemma 3)
    whole,  ///< of all query heads together, and of all key heads (OLMo 2)
  };

  std::string family = "gpt2";
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< key and value heads; 0: as many as heads
  std::int64_t head_dim = 0;  ///< 0: hidden / heads
  std::int64_t ffn = 0;       ///< inner width of the MLP
  std::int64_t vocab = 0;
  std::int64_t seq = 0;        ///< tokens of one sequence
  std::int64_t positions = 0;  ///< places the model knows, >= seq; rows of a learned table; 0: seq

  Norm norm = Norm::layer;
  float norm_eps = 1e-5f;
  float norm_offset = 0;    ///< added to an RMSNorm's weight, which is learnt without it (Gemma: 1)
  bool embed_norm = false;  ///< a norm right after the embedding (BLOOM)
  bool pre_norms = true;    ///< a norm before each half of a block (OLMo 2 has none)
  bool post_norms = false;  ///< a norm on what each half of a block adds (GLM-4-0414, OLMo 2, Gemma)
  QkNorm qk_norm = QkNorm::none;
  bool scaled_embedding = false;  ///< embeddings are multiplied by the root of `hidden` (Gemma)

  Position position = Position::learned;
  std::int64_t position_offset = 0;  ///< of the learned table's first place (OPT: 2)
  std::int64_t rotary_dim = 0;       ///< elements of a head that RoPE turns; 0: all
  bool rotary_interleaved = false;   ///< pairs (2i, 2i + 1) rather than (i, i + rotary_dim / 2)
  kernels::RopeFrequencies frequencies = {};
  /// Those of sliding layers, where they have their own (Gemma 3).
  std::optional<kernels::RopeFrequencies> sliding_frequencies = {};
  std::int64_t no_rope_every = 0;      ///< every so many layers one is without RoPE (SmolLM3); 0: none is
  std::vector<bool> rope_layers = {};  ///< of each layer, whether RoPE turns it; empty: by no_rope_every

  /// Keys that a query of a sliding layer sees, its own the last (Beltagy et al. 2020); 0: no layer slides.
  std::int64_t window = 0;
  std::int64_t full_every = 0;     ///< every so many layers one sees all keys (Gemma); 0: all layers slide
  std::vector<bool> sliding = {};  ///< of each layer, whether it slides; empty: by full_every
  float score_softcap = 0;         ///< scores s become cap tanh(s / cap) (Gemma 2); 0: they stay
  float logit_softcap = 0;         ///< likewise logits
  float query_scalar = 0;          ///< scores are divided by its root; 0: by that of head_dim

  Mlp mlp = Mlp::gelu;
  bool qkv_bias = true, out_bias = true, mlp_bias = true;
  bool tied_head = true;  ///< the head is the token table
};

/// Whether the MLP has a gate: its first matrix makes gate and up.
constexpr bool is_gated(DecoderConfig::Mlp mlp) noexcept { return mlp >= DecoderConfig::Mlp::swiglu; }
/// The families this build knows.
const std::vector<std::string_view>& decoder_families();
/// A config of `family` with its sizes still 0; nothing for a family that is not known.
std::optional<DecoderConfig> decoder_for_family(std::string_view family);
/// `config` with the sizes that follow from others filled in.
DecoderConfig with_derived_sizes(DecoderConfig config);

/// All problems at once, each naming the key and both numbers. Errors: `invalid`.
Status validate(const DecoderConfig& config);
/// Parameters of the model, tied ones counted once.
std::int64_t count_parameters(const DecoderConfig& config);

/// What the recorded program ends in.
enum class DecoderHead : std::uint8_t {
  loss,    ///< inputs "tokens" and "targets" [batch * seq] i32 and "divisor" [1] f32, output "loss" [1]
  logits,  ///< input "tokens" [batch * seq] i32, output "logits" [batch * seq, vocab]
};
/// Whether a row of seq holds one text or several documents that do not see each other.
enum class DecoderRows : std::uint8_t {
  whole,
  packed,  ///< one more input "doc_start" [batch * seq] i32: the place in its row of a token's document's
           ///< first token
};

/// Records the forward of a decoder over `batch` sequences, computing in `compute`: f32, bf16 or f16.
/// Parameters come in the same order whatever the head and the rows; their names and layouts:
/// model/README.md, "Parameters". Initial values as in GPT-2 (Radford et al. 2019, section 2.3): N(0, 0.02),
/// projections into the residual stream scaled by 1 / sqrt(2 layers).
Result<Program> record_decoder(const DecoderConfig& config, std::int64_t batch, DecoderHead head,
                               DecoderRows rows = DecoderRows::whole, DType compute = DType::f32);

/// How much a program that continues sequences takes at once, and what its cache holds.
struct CacheShape {
  std::int64_t rows = 1;        ///< tokens a run: of one sequence or of several
  std::int64_t sequences = 1;   ///< places for sequences in the cache
  std::int64_t context = 0;     ///< tokens of one sequence, at most the positions that the model knows
  std::int64_t logit_rows = 1;  ///< rows of logits a run makes
};
/// Bytes of the states that record_cached_decoder() declares.
std::uint64_t cache_bytes(const DecoderConfig& config, const CacheShape& shape);
/// Records the forward of a decoder whose keys and values of past tokens are states of the program,
/// "layers.N.keys" and "layers.N.values" f32 [sequences, kv_heads, context, head_dim]. Inputs, all i32:
/// "tokens", "positions" (absolute, below context) and "slots" (place in the cache, -1: no token) [rows], and
/// "logit_indices" [logit_rows], indices of rows; output "logits" [logit_rows, vocab], of those rows.
/// Parameters are those of record_decoder(), in f32. Programs that differ in rows and logit_rows alone have
/// equal states and can share them: one to take in prompts, one to go on token by token. Errors: `invalid`,
/// all problems at once.
Result<Program> record_cached_decoder(const DecoderConfig& config, const CacheShape& shape);

}  // namespace strata
