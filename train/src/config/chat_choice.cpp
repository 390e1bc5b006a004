#include <strata/train/chat_choice.h>

#include <strata/model/text_markers.h>
#include <strata/model/tokenizer_config.h>
#include <strata/runtime/str.h>
#include <strata/train/run_folder.h>

namespace strata {
namespace {

/// The folder of the tokenizer's other files. Empty if the tokenizer file has another name than
/// tokenizer.json: the configuration beside it may then belong to another tokenizer.
std::string folder_of(const std::string& tokenizer) {
  const std::size_t slash = tokenizer.rfind('/');
  const std::string name = tokenizer.substr(slash == std::string::npos ? 0 : slash + 1);
  if (!name.ends_with(".json")) return tokenizer;
  if (name != "tokenizer.json") return {};
  return slash == std::string::npos ? "." : tokenizer.substr(0, slash);
}

/// The tokens that the folder's template may print. Where its configuration does not name them, they are
/// those of the tokenizer, which takes long to load.
Result<SpecialWords> words_of(Io& io, const std::string& folder, const std::string& tokenizer,
                              const TokenizerConfig& config) {
  const bool of_run =
      io.exists(str(folder, "/", kTextMarkersFile)) || io.exists(str(folder, "/", kResolvedConfig));
  if (!of_run && !config.bos_token.empty() && !config.eos_token.empty()) return special_words(config);
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

Result<ChatChoice> choose_chat(Io& io, const std::string& wanted, const std::string& tokenizer) {
  ChatChoice choice;
  const std::string folder = folder_of(tokenizer);
  TokenizerConfig config;
  if (!folder.empty()) {
    STRATA_TRY_ASSIGN(config, load_tokenizer_config(io, folder));
    choice.jinja = config.chat_template;
  }
  const bool is_own = !choice.jinja.empty();
  const bool of_run = is_own && io.exists(str(folder, "/", kResolvedConfig));
  if (wanted == "own" && !is_own)
    return Status::error(Code::not_found,
                         str("data.chat_template = own, but there is no chat_template beside ",
                             tokenizer.empty() ? "the tokenizer, which is trained" : tokenizer));
  if (wanted != "auto" && wanted != "own" && !of_run) {
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
