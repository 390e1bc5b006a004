#include <strata/train/router_bias.h>

#include <algorithm>

#include <strata/config/train_config.h>
#include <strata/plan/expert_rows.h>

namespace strata {

void balance_choice(std::span<float> bias, std::int64_t first, std::span<const double> offsets, float rate) {
  const auto experts = static_cast<double>(offsets.size() - 1);
  const double all = offsets.back() - offsets.front();
  for (std::size_t i = 0; i < bias.size(); ++i) {
    const std::size_t e = static_cast<std::size_t>(first) + i;
    const double missing = all - experts * (offsets[e + 1] - offsets[e]);  // times the number of experts
    if (missing != 0) bias[i] += missing > 0 ? rate : -rate;
  }
}

RouterBias::RouterBias(const TrainConfig& config)
    : rate_(static_cast<float>(config.train.router_bias_rate)), names_(balanced_biases(config)) {
  for (std::size_t i = 0; i < names_.size(); ++i) rows_.push_back(expert_rows_output(i));
}

Status RouterBias::after_step(Engine& engine) const {
  return engine.edit_params([this, &engine](const StatePiece& piece, std::span<float> values) {
    const auto at = std::find(names_.begin(), names_.end(), piece.name);
    balance_choice(values, piece.offset,
                   engine.step_sum(rows_[static_cast<std::size_t>(at - names_.begin())]), rate_);
    return Status::ok();
  });
}

}  // namespace strata
