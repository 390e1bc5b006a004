// Reads the tokenizer of a GGUF file (tokenizer.ggml.*): the files that describe one in a Hugging Face
// folder.
#pragma once

#include <string>

#include <strata/runtime/io/gguf/reader.h>
#include <strata/runtime/status.h>

namespace strata {

/// tokenizer.json. Merges of SentencePiece are in the order of the scores of
/// their results, as in transformers' conversion. Errors: `corrupt` for a key that is missing, has a wrong
/// type or contradicts another; `unsupported` for another tokenizer or splitting rule, by name.
Result<std::string> tokenizer_from_gguf(const GgufReader& file);
/// tokenizer_config.json: the names of tokens that begin, end and pad a text, and the chat template.
Result<std::string> tokenizer_config_from_gguf(const GgufReader& file);
/// generation_config.json: the ids of these tokens, and of all that end a text.
Result<std::string> generation_config_from_gguf(const GgufReader& file);

}  // namespace strata
