// The names of the families in llama.cpp, and what it can compute of each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/model/decoder_config.h>
#include <strata/runtime/status.h>

#include <strata/runtime/io/gguf/layout.h>

namespace strata::detail {

/// A family's architecture in llama.cpp: src/models/ there has a file for each, and conversion/ what its
/// converter from Hugging Face folders does with the tensors.
struct GgufArchitecture {
  std::string_view family;
  std::string_view name;
  bool permutes_qk = false;    ///< RoPE turns pairs (2i, 2i + 1), where ours are (i, i + head_dim / 2)
  bool square_heads = false;   ///< heads times head_dim must be hidden
  bool slides = false;         ///< knows layers with a sliding window
  bool out_biases = false;     ///< has places for biases of attn_out, mlp_in and mlp_out
  bool head_required = false;  ///< a tied head must be in the file, too
  bool head_always_tied = false;
  bool rope_factors = false;  ///< reads rope_freqs.weight
};

/// The architecture of a model. Errors: `unsupported` for a family without one, or if llama.cpp would compute
/// something else than this model; all problems at once.
Result<GgufArchitecture> gguf_architecture(const DecoderConfig& config);

/// The architecture by its name in llama.cpp, of the first family that has it; null if there is none.
const GgufArchitecture* gguf_architecture_named(std::string_view name);
/// The names of all, for messages.
std::string gguf_architecture_names();

/// The number by whose square root llama.cpp divides attention scores. It takes another one for Gemma's
/// largest models, which it knows by their layers.
std::int64_t gguf_divisor_of_scores(std::string_view name, const DecoderConfig& config);

/// Tokens of context within which llama.cpp computes the model: its positions, or the window of its sliding
/// layers where llama.cpp would let them see all keys.
std::int64_t gguf_context(const GgufArchitecture& architecture, const DecoderConfig& config);

/// Adds the sizes and settings of the model under the keys of its architecture. `config` has its derived
/// sizes.
void add_architecture(const GgufArchitecture& architecture, const DecoderConfig& config,
                      GgufMetadata& metadata);

}  // namespace strata::detail
