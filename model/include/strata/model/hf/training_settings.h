#pragma once

#include <string>

#include <strata/runtime/status.h>

namespace strata {

/// Returns the training settings of a Hugging Face config.json that strata ignores, as "attn_pdrop = 0.1,
/// embd_pdrop = 0.1": every dropout above 0, including a default of the family that the file does not
/// override. Empty if there are none. Errors: `corrupt` for text that is no JSON object.
Result<std::string> ignored_training_settings(const std::string& config_json);

}  // namespace strata
