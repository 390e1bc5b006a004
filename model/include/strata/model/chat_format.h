#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <strata/model/tokenizer.h>
#include <strata/runtime/digest.h>

namespace strata {

/// How the messages of a conversation stand in a document: each is `before`, its content, `end` and `after`.
/// These are the format's own words, in which special tokens count; those in a content are its characters. A
/// value.
struct ChatFormat {
  struct Turn {
    std::string role;
    std::string before;
    std::string end;      ///< learnt with the content: what a model stops with
    std::string after;    ///< never learnt
    bool learnt = false;  ///< the assistant's turns
  };
  std::string name;
  std::vector<Turn> turns;  ///< one for each role it knows

  /// Null for a role it does not know.
  const Turn* find(std::string_view role) const noexcept;
  /// "system, user, assistant"
  std::string roles() const;
  /// Equal digests write equal documents.
  Digest digest() const;

  /// Words alone, "User:" and "Assistant:" on lines of their own, for tokenizers without tokens for turns.
  static ChatFormat plain();
  /// "<|im_start|>role\ncontent<|im_end|>\n"
  static ChatFormat chatml();
  /// ChatML for a tokenizer that has its two tokens, else plain.
  static ChatFormat of(const Tokenizer& tokenizer);
};

}  // namespace strata
