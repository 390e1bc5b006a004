#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <strata/text/tokenizer_spec.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// The keys of a tokenizer_config.json that strata uses; the others only concern Hugging Face's classes.
struct TokenizerConfig {
  std::string tokenizer_class;  ///< this and the tokens below are empty if absent
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::string chat_template;  ///< Jinja; if there are several, the one named "default"
  bool add_bos_token = false;
  bool add_prefix_space = false;
  std::vector<AddedToken> added;  ///< added_tokens_decoder, by id
};

/// The keys of a generation_config.json that strata uses: which tokens begin and end a text.
struct GenerationConfig {
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> pad;
  std::vector<std::int32_t> eos;  ///< any of them ends a text
};

/// Errors: `corrupt` for a damaged file or a value of the wrong type, with the key.
Result<TokenizerConfig> parse_tokenizer_config(const std::string& text);
Result<GenerationConfig> parse_generation_config(const std::string& text);

/// Replaces the chat template in the text of a tokenizer_config.json, if it has one, since programs differ in
/// whether it or a chat_template.jinja next to it takes precedence. Text that is no JSON is returned
/// unchanged.
std::string with_chat_template(const std::string& text, const std::string& jinja);

/// Loads the files of a Hugging Face folder. A chat_template.jinja takes precedence over the template in
/// tokenizer_config.json, as in Hugging Face's code. A missing file gives empty values. Errors: also those of
/// reading.
Result<TokenizerConfig> load_tokenizer_config(Io& io, const std::string& folder);
Result<GenerationConfig> load_generation_config(Io& io, const std::string& folder);

}  // namespace strata
