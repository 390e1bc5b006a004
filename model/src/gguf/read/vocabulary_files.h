// The reverse of add_vocabulary(): the files that describe a tokenizer in a Hugging Face folder, from the
// metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <string>

#include <strata/runtime/status.h>

#include "gguf/read/reader.h"

namespace strata::detail {

/// tokenizer.json. Merges of SentencePiece are in the order of the scores of their results, as in
/// transformers' conversion. Errors: `corrupt` for a key that is missing, has a wrong type or contradicts
/// another; `unsupported` for another tokenizer or splitting rule, by name; those of Tokenizer::create().
Result<std::string> tokenizer_from_gguf(const GgufReader& file);
/// tokenizer_config.json: the names of tokens that begin, end and pad a text, and the chat template.
Result<std::string> tokenizer_config_from_gguf(const GgufReader& file);
/// generation_config.json: the ids of these tokens, and of all that end a text.
Result<std::string> generation_config_from_gguf(const GgufReader& file);

}  // namespace strata::detail
