#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata {

/// An answer that the policy sampled to a prompt, and what is known of it.
struct Rollout {
  std::uint32_t prompt = 0;    ///< its number in the PromptSet
  std::uint32_t n_prompt = 0;  ///< how many of `ids` are the prompt's
  std::int32_t stop = -1;      ///< the token that ended it, which `ids` lacks; -1: it was cut off
  std::vector<std::int32_t> ids;
  double reward = 0;
  /// What the sampler says of each chosen token: its log-probability at the run's temperature, and the
  /// entropy of the distribution. Empty after a resume.
  std::vector<float> log_probs = {}, entropies = {};

  /// Tokens that the policy chose: those of the answer, and the one that ended it. At least one.
  std::size_t n_chosen() const noexcept { return ids.size() - n_prompt + (stop >= 0 ? 1 : 0); }
  std::int32_t chosen(std::size_t i) const noexcept {
    return n_prompt + i < ids.size() ? ids[n_prompt + i] : stop;
  }
};

}  // namespace strata
