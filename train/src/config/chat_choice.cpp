#include <strata/train/chat_choice.h>

#include <strata/model/tokenizer_config.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

/// The folder of the tokenizer's tokenizer_config.json. Empty if the tokenizer file has another name than
/// tokenizer.json: the configuration beside it may then belong to another tokenizer.
std::string folder_of(const std::string& tokenizer) {
  const std::size_t slash = tokenizer.rfind('/');
  const std::string name = tokenizer.substr(slash == std::string::npos ? 0 : slash + 1);
  if (!name.ends_with(".json")) return tokenizer;
  if (name != "tokenizer.json") return {};
  return slash == std::string::npos ? "." : tokenizer.substr(0, slash);
}

}  // namespace

std::string ChatChoice::warning() const {
  if (chat.has_value()) return {};
  return str(
      why,
      " is unknown, so conversations are refused and only plain text is accepted; set data.chat_template to ",
      "one of ", chat_template_names());
}

Result<ChatChoice> choose_chat(Io& io, const std::string& wanted, const std::string& tokenizer) {
  ChatChoice choice;
  if (const std::string folder = folder_of(tokenizer); !folder.empty()) {
    STRATA_TRY_ASSIGN(TokenizerConfig config, load_tokenizer_config(io, folder));
    choice.jinja = std::move(config.chat_template);
  }
  const Result<ChatTemplate> own = detect_chat_template(choice.jinja);
  if (wanted != "auto") {
    choice.chat = chat_template_named(wanted);
    if (!choice.chat.has_value()) return choice.chat.status();
    // Two templates of one format may still differ, for example in the text used without a system message.
    if (own.has_value() && own->format == choice.chat->format) choice.chat = own;
    choice.why = "requested";
  } else if (!choice.jinja.empty()) {
    choice.chat = own;
    choice.why = str("the chat_template beside ", tokenizer);
  } else {
    choice.why = tokenizer.empty() ? std::string("a tokenizer trained on data.train has no chat_template")
                                   : str("there is no chat_template beside ", tokenizer);
  }
  return choice;
}

}  // namespace strata
