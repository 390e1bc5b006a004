#pragma once

#include <cstddef>
#include <string_view>

#include "data/records/messages.h"

namespace strata::detail {

/// How many messages both conversations begin with.
std::size_t common_messages(const Messages& a, const Messages& b);

/// Puts a prompt that is a text before two conversations that lack it, behind what the system says. Most have
/// it: then it is their beginning once more (ultrafeedback). TRL takes that for granted.
void add_text_prompt(std::string_view prompt, Messages& chosen, Messages& rejected);

}  // namespace strata::detail
