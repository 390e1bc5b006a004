#pragma once

#include <string>

#include <strata/text/chat.h>
#include <strata/runtime/io/io.h>

namespace strata {

/// The chat template with which conversations in the data are written, and why it was chosen.
struct ChatChoice {
  /// An error if the tokenizer's own template cannot be used and no other was requested. It matters only once
  /// the data contains a conversation.
  Result<ChatTemplate> chat = ChatTemplate{};
  std::string why;
  std::string jinja;  ///< the tokenizer's own template; empty if it has none

  /// A warning if the tokenizer's own template cannot be used; otherwise empty.
  std::string warning() const;
};

/// `wanted`: "auto", "own" or the name of a built-in template. `tokenizer`: a tokenizer.json or a folder that
/// contains one; empty if the tokenizer is yet to be trained. "auto" is the template in the files beside the
/// tokenizer, or the plain one if there is none. `keeps`: `wanted` is what a run has resolved, and the folder
/// is the run's, so that its template is the one that the run was trained with, whatever its name is. Errors:
/// `unsupported` for an unknown name, `not_found` for "own" without one; those of reading the folder.
Result<ChatChoice> choose_chat(Io& io, const std::string& wanted, const std::string& tokenizer,
                               bool keeps = false);

}  // namespace strata
