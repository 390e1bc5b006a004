#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/infer/pair_figures.h>
#include <strata/model/decoder_config.h>

namespace strata {

class Engine;

/// How evenly the tokens of a step have used the experts.
struct ExpertFigures {
  std::int64_t n = 0;    ///< mixtures of the model; 0: nothing is known
  double load = 0;       ///< rows of the busiest expert by those of the mean one, of the least even layer
  double mean_load = 0;  ///< the same of each layer, the mean over layers
  double entropy = 0;    ///< the entropy of rows over experts by its maximum, 0 to 1, the mean over layers
  double empty = 0;      ///< experts without rows, in all layers
  /// Losses of routers, without their coefficients: the mean over micro-batches. Empty: the run has none.
  std::optional<double> router_aux{}, router_z{};
  /// A layer with a mixture, and its load as above. Valid until the next step.
  struct LayerLoad {
    std::int64_t layer = 0;
    double load = 0;
  };
  std::span<const LayerLoad> layers{};
};
/// The most layers whose loads are in a line of metrics.
inline constexpr std::size_t kMostLayerLoads = 128;
inline constexpr std::size_t kExpertFigures = 6;
/// "expert_load", "expert_load_mean", "expert_entropy", "experts_empty", "router_aux" and "router_z"; the
/// last ones have no name if the run has no such loss.
std::array<NamedFigure, kExpertFigures> named_figures(const ExpertFigures& experts) noexcept;

/// Counts the rows of experts in a step, of all ranks, from its sums (expert_sums).
class ExpertLoad {
 public:
  /// `losses`: those that the run has.
  ExpertLoad(const DecoderConfig& decoder, const RouterLosses& losses);
  /// The figures of the last step, of `micro_batches`, or none if it has no such sums. Nothing is allocated.
  ExpertFigures of_step(const Engine& engine, std::int32_t micro_batches);

 private:
  void add_losses(const Engine& engine, std::int32_t micro_batches, ExpertFigures& figures) const;

  RouterLosses losses_;
  std::int64_t n_experts_ = 0;
  std::vector<std::string> outputs_;  ///< one for each mixture
  std::vector<ExpertFigures::LayerLoad> loads_;
  std::vector<double> rows_;  ///< one for each expert of a mixture
};

}  // namespace strata
