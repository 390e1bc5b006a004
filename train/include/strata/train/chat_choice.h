#pragma once

#include <string>

#include <strata/model/chat.h>
#include <strata/runtime/io/io.h>

namespace strata {

/// The chat template with which conversations in the data are written, and why it was chosen.
struct ChatChoice {
  /// An error if the tokenizer's own template is unknown and no other was requested. It matters only once the
  /// data contains a conversation.
  Result<ChatTemplate> chat = ChatTemplate{};
  std::string why;
  std::string jinja;  ///< the tokenizer's own template; empty if it has none

  /// A warning if strata does not know the tokenizer's own template; otherwise empty.
  std::string warning() const;
};

/// `wanted`: "auto" or the name of a format. `tokenizer`: a tokenizer.json or a folder that contains one;
/// empty if the tokenizer is yet to be trained. "auto" selects the template in the tokenizer_config.json
/// beside the tokenizer, or the plain format if there is none. Errors: `unsupported` for an unknown name;
/// those of reading the folder.
Result<ChatChoice> choose_chat(Io& io, const std::string& wanted, const std::string& tokenizer);

}  // namespace strata
