#include <strata/config/chat_choice.h>

#include <strata/text/text_markers.h>
#include <strata/text/tokenizer_config.h>
#include <strata/runtime/str.h>
#include <strata/config/run_layout.h>

namespace strata {
namespace {

/// The tokens that the folder's template may print: those of a run's markers, else those that the
/// configuration names. Only a template that prints another one needs the tokenizer, which takes long to
/// load.
Result<SpecialWords> words_of(Io& io, const std::string& folder, const std::string& tokenizer,
                              const TokenizerConfig& config) {
  if (const std::string path = str(folder, "/", kTextMarkersFile); io.exists(path)) {
    STRATA_TRY_ASSIGN(const std::string text, read_text(io, path, std::uint64_t{16} << 20));
    STRATA_TRY_ASSIGN(TextMarkers markers, parse_text_markers(text));
    return std::move(markers.words);
  }
  const auto lacks = [&](const char* name, const std::string& token) {
    return token.empty() && config.chat_template.find(name) != std::string::npos;
  };
  const bool is_known = !lacks("bos_token", config.bos_token) && !lacks("eos_token", config.eos_token);
  if (is_known && !io.exists(str(folder, "/", kResolvedConfig))) return special_words(config);
  STRATA_TRY_ASSIGN(const Tokenizer loaded, Tokenizer::load(io, tokenizer));
  return loaded.markers().words;
}

Result<ChatTemplate> own_template(Io& io, const std::string& folder, const std::string& tokenizer,
                                  const TokenizerConfig& config) {
  STRATA_TRY_ASSIGN(const SpecialWords words, words_of(io, folder, tokenizer, config));
  return ChatTemplate::parse(config.chat_template, words);
}

}  // namespace

std::string ChatChoice::warning() const {
  if (chat.has_value()) return {};
  return str(why, " cannot be used: ", chat.status().message(),
             "; conversations are refused and only plain text is accepted; set data.chat_template to one of ",
             chat_template_names());
}

Result<ChatChoice> choose_chat(Io& io, const std::string& wanted, const std::string& tokenizer, bool keeps) {
  ChatChoice choice;
  const std::string folder = folder_of_tokenizer(tokenizer);
  TokenizerConfig config;
  if (!folder.empty()) {
    STRATA_TRY_ASSIGN(config, load_tokenizer_config(io, folder));
    choice.jinja = config.chat_template;
  }
  const bool is_own = !choice.jinja.empty();
  if (wanted == "own" && !is_own)
    return Status::error(Code::not_found,
                         str("data.chat_template = own, but there is no chat_template beside ",
                             tokenizer.empty() ? "the tokenizer, which is trained" : tokenizer));
  if (wanted != "auto" && wanted != "own" && !(keeps && is_own)) {
    choice.chat = ChatTemplate::named(wanted);
    if (!choice.chat.has_value()) return choice.chat.status();
    choice.why = "requested";
  } else if (is_own) {
    choice.chat = own_template(io, folder, tokenizer, config);
    choice.why = wanted == "auto" ? str("the chat_template beside ", tokenizer) : "requested";
  } else {
    choice.why = tokenizer.empty() ? std::string("a tokenizer trained on data.train has no chat_template")
                                   : str("there is no chat_template beside ", tokenizer);
  }
  return choice;
}

}  // namespace strata
