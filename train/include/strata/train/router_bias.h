#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <strata/engine/engine.h>

namespace strata {

struct TrainConfig;

/// Moves elements of the bias by which a router chooses, from expert `first` on, towards an even load,
/// without a loss (Wang et al. 2024, arXiv 2408.15664, Alg. 1; DeepSeek-AI 2024, arXiv 2412.19437,
/// section 2.1.2): bias += rate sign(mean rows - rows of the expert). `offsets`: of all experts [E + 1],
/// expert e has got offsets[e + 1] - offsets[e] rows, which are integers, so that the sign is exact.
void balance_choice(std::span<float> bias, std::int64_t first, std::span<const double> offsets, float rate);

/// Balances the routers of a run after each of its steps (train.router_bias_rate), by the rows of all ranks.
class RouterBias {
 public:
  explicit RouterBias(const TrainConfig& config);
  /// Whether the run changes biases.
  bool any() const noexcept { return !names_.empty(); }
  /// Changes them by the engine's last step, which was not skipped. All ranks call it. Allocates nothing from
  /// the engine's second step on. Errors: those of Session::edit_params().
  Status after_step(Engine& engine) const;

 private:
  const float rate_;
  const std::vector<std::string> names_;  // the biases, by mixture
  std::vector<std::string> rows_;         // the sums of the rows of each
};

}  // namespace strata
