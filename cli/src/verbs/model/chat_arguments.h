#pragma once

#include <strata/runtime/status.h>
#include <strata/infer/generation_source.h>

#include "args.h"

namespace strata::cli {

/// Gives the chat template what --chat-template-kwargs and --enable-thinking say. Errors: `invalid` if both
/// say whether it thinks; those of GenerationSource::set_chat_arguments().
Status set_chat_arguments(const Args& args, GenerationSource& source);

}  // namespace strata::cli
