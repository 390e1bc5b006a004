#pragma once

#include <string>

#include <strata/runtime/status.h>

namespace strata {

/// Returns the training settings of a Hugging Face config.json that strata ignores, as "attn_pdrop = 0.1,
/// embd_pdrop = 0.1": every dropout above 0, including a default of the family that the file does not
/// override. Empty if there are none. Errors: `corrupt` for text that is no JSON object.
Result<std::string> ignored_training_settings(const std::string& config_json);

/// Returns the coefficient of the loss that balances the load of experts in transformers:
/// router_aux_loss_coef of a config.json with output_router_logits = true, or its default of the family. 0:
/// there is no such loss. Errors: `corrupt` for text that is no JSON object, `invalid` for a coefficient that
/// is no number, or below 0.
Result<double> router_aux_in_hf_config(const std::string& config_json);

}  // namespace strata
