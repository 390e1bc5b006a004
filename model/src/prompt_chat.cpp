#include <strata/model/chat.h>

#include "prompt_encode.h"

namespace strata::detail {
namespace {

/// What a model writes once its answer is over.
std::vector<std::string_view> end_markers(const ChatTemplate& chat) {
  switch (chat.format) {
    case ChatFormat::plain:
      return {chat.eos};
    case ChatFormat::chatml:
    case ChatFormat::qwen3:
      return {"<|im_end|>"};
    case ChatFormat::llama3:
    case ChatFormat::llama31:
      return {"<|eot_id|>"};
    case ChatFormat::glm4:
      return {"<|user|>", "<|observation|>"};  // the next turn's role
  }
  return {};
}

}  // namespace

Result<PromptTokens> encode_family_chat(const Tokenizer& tokenizer, std::span<const PromptTurn> turns,
                                        std::string_view jinja) {
  STRATA_TRY_ASSIGN(const ChatTemplate chat, detect_chat_template(jinja));
  std::vector<ChatMessage> messages;
  for (const PromptTurn& turn : turns) messages.push_back({turn.role, turn.content});
  STRATA_TRY_ASSIGN(const ChatText text, render_chat(chat, messages, true));
  STRATA_TRY_ASSIGN(ChatTokens tokens, encode_chat(tokenizer, text));
  PromptTokens out{std::move(tokens.ids), {}};
  for (const std::string_view marker : end_markers(chat))
    if (const std::int32_t id = tokenizer.added_id(marker); id >= 0) out.ends.push_back(id);
  return out;
}

}  // namespace strata::detail
