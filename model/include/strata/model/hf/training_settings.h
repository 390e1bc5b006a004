#pragma once

#include <string>

#include <strata/runtime/status.h>

namespace strata {

/// What a Hugging Face config.json asks for in training that strata does not do, as "attn_pdrop = 0.1,
/// embd_pdrop = 0.1": every kind of dropout above 0, also where the family has it unless the file says
/// otherwise. Empty where there is nothing. Errors: `corrupt` for text that is no JSON object.
Result<std::string> ignored_training_settings(const std::string& config_json);

}  // namespace strata
