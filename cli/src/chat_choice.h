#pragma once

#include <string>

#include <strata/model/chat.h>
#include <strata/runtime/io.h>

namespace strata::cli {

/// How the conversations of training data are written, and why so.
struct ChatChoice {
  /// An error where the tokenizer's own template is not known and no other was asked for: of no concern
  /// until there is a conversation.
  Result<ChatTemplate> chat = ChatTemplate{};
  std::string why;
  std::string jinja;  ///< the tokenizer's own template, empty where it has none

  /// A sentence where the tokenizer's own template is one that strata does not know; else empty.
  std::string warning() const;
};

/// `wanted` is "auto" or a format's name, `tokenizer` a tokenizer.json or a folder that has one, empty for
/// one that is still to be trained. Auto is what the tokenizer_config.json beside it asks for, else plain
/// words. Errors: `unsupported` for a name that is not known; those of reading the folder.
Result<ChatChoice> choose_chat(Io& io, const std::string& wanted, const std::string& tokenizer);

}  // namespace strata::cli
