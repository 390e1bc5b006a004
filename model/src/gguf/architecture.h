// The names of the families in llama.cpp, and what it can compute of each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/model/decoder_config.h>
#include <strata/runtime/status.h>

#include <strata/runtime/io/gguf/layout.h>

#include "family/family.h"

namespace strata::detail {

// LLAMA_EXPERT_GATING_FUNC_TYPE_SOFTMAX and _SIGMOID
inline constexpr std::int64_t kGgufSoftmax = 1, kGgufSigmoid = 2;

/// The architecture of a model. Errors: `unsupported` for a family without one, or if llama.cpp would compute
/// something else than this model; all problems at once.
Result<GgufArchitecture> gguf_architecture(const DecoderConfig& config);

/// The first family with an architecture of that name, rather one that is of mixtures if the file has
/// experts; null if there is none.
const Family* family_of_gguf(std::string_view architecture, bool has_experts);
/// The names of all, for messages.
std::string gguf_architecture_names();

/// The number by whose square root llama.cpp divides attention scores. It takes another one for Gemma's
/// largest models, which it knows by their layers.
std::int64_t gguf_divisor_of_scores(const GgufArchitecture& architecture, const DecoderConfig& config);

/// Tokens of context within which llama.cpp computes the model: its positions, or the window of its sliding
/// layers where llama.cpp would let them see all keys.
std::int64_t gguf_context(const GgufArchitecture& architecture, const DecoderConfig& config);

/// Adds the sizes and settings of the model under the keys of its architecture. `config` has its derived
/// sizes.
void add_architecture(const GgufArchitecture& architecture, const DecoderConfig& config,
                      GgufMetadata& metadata);

}  // namespace strata::detail
