#pragma once

#include <span>
#include <string_view>

#include <strata/model/prompts.h>

namespace strata::detail {

/// As the family's own template writes it. In a file of its own: chat.h and chat_format.h share a name.
Result<PromptTokens> encode_family_chat(const Tokenizer& tokenizer, std::span<const PromptTurn> turns,
                                        std::string_view jinja);

}  // namespace strata::detail
