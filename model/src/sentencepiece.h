// What tokenizers that came from SentencePiece (Kudo and Richardson 2018) do otherwise than byte-level ones,
// as tokenizer.json files of LLaMA-2, Mistral, Phi-3 and Gemma write it: tokens are characters, a space is
// U+2581, one may be put in front of a text, and a character without a token becomes its bytes' "<0xE4>"
// tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/model/tokenizer.h>

namespace strata::detail {

/// Whether a tokenizer.json is one, by its normalizer or pre-tokenizer.
bool is_sentencepiece(const nlohmann::json& root);
/// Reads normalizer, pre-tokenizer and decoder. Errors: as of read_pipeline.
Status read_sentencepiece(const nlohmann::json& root, TokenizerSpec& spec);

/// The byte that "<0xE4>" stands for.
std::optional<unsigned char> byte_of_token(std::string_view key) noexcept;
/// What a token of the vocabulary stands for, with spaces in place of U+2581, and how it is written again.
/// Nothing for one that has both, which no text becomes.
std::optional<std::string> text_of_token(std::string_view key);
std::string key_of_text(std::string_view text);
std::string key_of_byte(unsigned char byte);

/// A part of a text between added tokens, as it is merged.
std::string normalize_spaces(std::string_view part, const TokenizerSpec& spec, TextPosition place);

}  // namespace strata::detail
