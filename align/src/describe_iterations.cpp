// The figures of an iteration, for the lines of its steps.
#include <strata/align/policy_iterations.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include <strata/config/train_config.h>

#include <strata/runtime/str.h>

#include "kl_estimate.h"

namespace strata {
namespace {

/// The share of groups of `size` answers to a prompt that all have the same reward.
double share_of_equal_rewards(std::span<const Rollout> rollouts, std::size_t size) {
  if (size < 2) return 0;
  double n = 0;
  for (std::size_t first = 0; first < rollouts.size(); first += size) {
    const std::span<const Rollout> group = rollouts.subspan(first, size);
    n += std::all_of(group.begin(), group.end(),
                     [&](const Rollout& one) { return one.reward == group.front().reward; });
  }
  return n * static_cast<double>(size) / static_cast<double>(rollouts.size());
}

}  // namespace

Result<std::string> PolicyIterations::lines(std::int64_t steps) const {
  std::string all;
  for (const Rollout& rollout : batches_.rollouts()) {
    STRATA_TRY_ASSIGN(const AnswerText text, text_of(rollout));
    std::vector<std::int32_t> ids = rollout.ids;
    if (rollout.stop >= 0) ids.push_back(rollout.stop);
    const auto json = [](const auto& value) {
      return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    all += str("{\"step\": ", steps + 1, ", \"prompt\": ", json(text.prompt),
               ", \"answer\": ", json(text.answer), ", \"ended\": ", json(text.ended),
               ", \"reward\": ", json(rollout.reward), ", \"n_prompt\": ", rollout.n_prompt,
               ", \"ids\": ", json(ids), ", \"log_probs\": ", json(rollout.log_probs), "}\n");
  }
  return all;
}

void PolicyIterations::describe() {
  const auto n = static_cast<double>(batches_.rollouts().size());
  const auto tokens = static_cast<double>(batches_.n_tokens());
  double sum = 0, squares = 0;
  for (const Rollout& rollout : batches_.rollouts()) {
    sum += rollout.reward;
    squares += rollout.reward * rollout.reward;
    figures_.ended += rollout.stop >= 0 ? 1 / n : 0;
  }
  figures_.n = n;
  figures_.reward = sum / n;
  figures_.reward_deviation = std::sqrt(std::max(0.0, squares / n - figures_.reward * figures_.reward));
  figures_.equal_rewards =
      share_of_equal_rewards(batches_.rollouts(), static_cast<std::size_t>(sizes_.samples));
  figures_.answer_tokens = tokens / n;
  figures_.packed = static_cast<double>(batches_.n_inputs()) / static_cast<double>(batches_.n_positions());
  figures_.kl_coef = objective_of(config_).has_critic ? used_kl_coef_ : kl_coef_;
}

// Adds the figures that the policy's log-probabilities give.
void PolicyIterations::describe_policy() {
  const auto tokens = static_cast<double>(batches_.n_tokens());
  for (const float entropy : batches_.values(TokenValue::entropy))
    figures_.entropy += static_cast<double>(entropy) / tokens;
  const std::vector<float>&old = batches_.values(TokenValue::old_log_prob),
        &reference = batches_.values(TokenValue::reference);
  for (std::size_t t = 0; t < old.size() && needs_reference_policy(config_); ++t)
    figures_.kl += kl_estimate(old[t], reference[t], true) / tokens;
}

}  // namespace strata
