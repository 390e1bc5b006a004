#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <strata/model/tokenizer_spec.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// What strata takes from a tokenizer_config.json; the file's other keys concern Hugging Face's classes
/// alone.
struct TokenizerConfig {
  std::string tokenizer_class;  ///< empty where absent, as are the tokens below
  std::string bos_token;
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::string chat_template;  ///< Jinja; of several the one named "default"
  bool add_bos_token = false;
  bool add_prefix_space = false;
  std::vector<AddedToken> added;  ///< added_tokens_decoder, by id
};

/// What strata takes from a generation_config.json: how a model starts and stops.
struct GenerationConfig {
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> pad;
  std::vector<std::int32_t> eos;  ///< any of them ends a text
};

/// Errors: `corrupt` for a damaged file or a value of the wrong kind, naming the key.
Result<TokenizerConfig> parse_tokenizer_config(const std::string& text);
Result<GenerationConfig> parse_generation_config(const std::string& text);

/// The text of a tokenizer_config.json with this chat template, where it has one in it: programs differ in
/// whether a chat_template.jinja beside it wins. A text that is no JSON stays as it is.
std::string with_chat_template(const std::string& text, const std::string& jinja);

/// Those of a Hugging Face folder; a chat_template.jinja beside tokenizer_config.json wins, as it does there.
/// A file that is absent gives empty values. Errors also: as reading.
Result<TokenizerConfig> load_tokenizer_config(Io& io, const std::string& folder);
Result<GenerationConfig> load_generation_config(Io& io, const std::string& folder);

}  // namespace strata
