#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

// The words of other programs for what this one has, so that a message can name it.

namespace strata::cli {

/// The text that follows the message that there is no verb `word`: what this program has for it, or all
/// `known` verbs and the nearest of them.
std::string verb_that_is_meant(std::string_view word, std::span<const std::string_view> known);
/// The text that follows the message that a verb with the options `known` (long names with their dashes) has
/// no option `name`: the option or key of this program, or the nearest option; empty if there is none.
std::string option_that_is_meant(const std::string& name, const std::vector<std::string>& known);

}  // namespace strata::cli
