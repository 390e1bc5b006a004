#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <strata/text/tokenizer_config.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

class Tokenizer;

/// The tokens that a chat template may print, by the names that tokenizer_config.json has for them:
/// bos_token, eos_token, pad_token, unk_token. Those that are not set are absent.
using SpecialWords = std::vector<std::pair<std::string, std::string>>;
SpecialWords special_words(const TokenizerConfig& config);

/// The tokens that begin and end a text. They are settled once for a model and hold wherever texts are read
/// or written: data, prompts, sampling, scoring, exports.
struct TextMarkers {
  /// Whether a text gets the tokens of the tokenizer's own template before it, such as BOS.
  bool encloses = true;
  std::int32_t bos = -1;           ///< the token after which an empty context is scored; -1: `end`
  std::int32_t end = -1;           ///< ends each document of training; -1: documents have no end
  std::int32_t pad = -1;           ///< fills rows; -1: `end`
  std::vector<std::int32_t> ends;  ///< each ends a text that is generated; `end` is one of them
  /// Ends an answer in the conversations that a run has learned from; -1: `end`, or there were none.
  std::int32_t turn_end = -1;
  SpecialWords words;

  /// The token after which an empty context is scored, as lm_eval does; -1 if there is none.
  std::int32_t before_nothing() const noexcept { return bos >= 0 ? bos : end; }
  bool is_end(std::int32_t id) const noexcept;
  void add_end(std::int32_t id);
  /// The token with which a model that was trained with these markers ends an answer.
  std::int32_t learned_end() const noexcept { return turn_end >= 0 ? turn_end : end; }
  friend bool operator==(const TextMarkers&, const TextMarkers&) = default;
};

/// The configuration of a run with every `auto` resolved, which makes a folder a run.
inline constexpr const char* kRunConfigFile = "config.resolved.toml";
/// The folder whose other files describe the tokens of a tokenizer file, or of that folder itself. Empty if
/// the file has another name than tokenizer.json: what is beside it may then belong to another tokenizer.
std::string folder_of_tokenizer(const std::string& tokenizer);

/// The file in a run's folder that holds the run's markers.
inline constexpr const char* kTextMarkersFile = "text_markers.json";
std::string text_markers_json(const TextMarkers& markers);
/// Errors: `corrupt`, with the key.
Result<TextMarkers> parse_text_markers(const std::string& text);

/// The markers of a tokenizer of which nothing else is known: its end is <|endoftext|> or another special
/// token that families call so.
TextMarkers markers_of(const Tokenizer& tokenizer);
/// As transformers has it: a document ends with the eos_token of the tokenizer_config.json, and generation
/// ends with any of the generation_config.json, or else of the config.json, and with that eos_token.
TextMarkers markers_of(const Tokenizer& tokenizer, const TokenizerConfig& config,
                       const GenerationConfig& generation);
/// From the files of a folder: those of a run, or of a Hugging Face folder. Runs that were made before they
/// kept their markers were trained without BOS, and end with <|endoftext|> alone. Errors: those of reading.
Result<TextMarkers> load_text_markers(Io& io, const std::string& folder, const Tokenizer& tokenizer);

/// "each document begins with <s> and ends with </s>"
std::string describe(const TextMarkers& markers, const Tokenizer& tokenizer);

}  // namespace strata
