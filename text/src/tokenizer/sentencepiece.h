// The differences of SentencePiece tokenizers (Kudo and Richardson 2018) from byte-level ones, as
// tokenizer.json files of LLaMA-2, Mistral, Phi-3 and Gemma write them: tokens consist of characters, a space
// is U+2581, a prefix space may be added to a text, and a character without a token becomes the tokens of its
// bytes, such as "<0xE4>".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <strata/text/tokenizer_spec.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Whether a tokenizer.json is a SentencePiece tokenizer, by its normalizer or pre-tokenizer.
bool is_sentencepiece(const nlohmann::json& root);
/// Reads normalizer, pre-tokenizer and decoder. Errors: those of read_pipeline.
Status read_sentencepiece(const nlohmann::json& root, TokenizerSpec& spec);

/// The byte that a token such as "<0xE4>" represents.
std::optional<unsigned char> byte_of_token(std::string_view key) noexcept;
/// Convert a token of the vocabulary to the text it represents, with spaces instead of U+2581, and back.
/// nullopt for a token that has both, which no text becomes.
std::optional<std::string> text_of_token(std::string_view key);
std::string key_of_text(std::string_view text);
std::string key_of_byte(unsigned char byte);

/// The form of a part of a text between added tokens to which merges are applied.
std::string normalize_spaces(std::string_view part, const TokenizerSpec& spec, TextPosition place);

}  // namespace strata::detail
