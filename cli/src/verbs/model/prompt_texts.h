#pragma once

#include <string>
#include <vector>

#include <strata/runtime/status.h>

#include "args.h"

namespace strata::cli {

/// Takes from the arguments those behind the first, the model, that are no section.key=value: texts to
/// continue.
std::vector<std::string> take_texts(std::vector<std::string>& items);

/// Adds `texts` to the prompts of --prompt; "-" is standard input. If there is no prompt then and no file of
/// them, the prompt is what another program writes to standard input, without the end of its last line.
/// Errors: `invalid` if there is none, if one is empty, and for the name of a file, which --prompts reads.
Status read_prompt_texts(Args& args, const std::vector<std::string>& texts);

}  // namespace strata::cli
