#pragma once

namespace strata::kernels {

/// How the logits of linear_log_probs become those of the softmax.
struct LogProbScaling {
  float softcap = 0;      ///< logits l first become softcap tanh(l / softcap); 0: no cap
  float temperature = 1;  ///< the capped logits are then divided by it
  friend bool operator==(const LogProbScaling&, const LogProbScaling&) = default;
};

}  // namespace strata::kernels
