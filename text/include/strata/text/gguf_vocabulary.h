// Writes the tokenizer of a GGUF file (tokenizer.ggml.*).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/runtime/io/gguf/layout.h>
#include <strata/runtime/status.h>
#include <strata/text/tokenizer.h>

namespace strata {

/// Facts about texts that a GGUF file states beside the tokenizer.
struct GgufTexts {
  std::int32_t end = -1;           ///< ends a text, if it is another than the tokenizer's markers say
  std::string chat_template = {};  ///< Jinja; empty: none
};

/// Adds the tokens, which are padded to `vocab`, the ranks of merges, what begins and ends a text, and the
/// chat template. Appends to `notes` what llama.cpp does differently. Errors: `invalid` if there are more
/// tokens than `vocab`; `unsupported` for a tokenizer that llama.cpp cannot have.
Status add_vocabulary(const Tokenizer& tokenizer, std::int64_t vocab, const GgufTexts& texts,
                      GgufMetadata& metadata, std::vector<std::string>& notes);

/// general.name: `name`, unless llama.cpp takes another meaning from it. In a model named Phi-3 it strips
/// white space as Phi-3's tokenizer does, and needs its tokens, so a model with that tokenizer must be named
/// so and no other may be; then the name is empty.
std::string gguf_model_name(const Tokenizer& tokenizer, const std::string& name,
                            std::vector<std::string>& notes);

}  // namespace strata
