#pragma once

#include <optional>
#include <string>
#include <vector>

#include <strata/offload/machine_profile.h>

namespace strata {

struct TrainConfig;

/// A way in which ranks divide a run: copies of the model (dp), whose layers are stages (pp), whose layers
/// and sequences ranks share (tp, cp).
struct MeshLayout {
  int dp = 1, pp = 1, virtual_stages = 1, tp = 1, cp = 1;
  int zero = 0;
  std::string schedule = "1f1b";
  int ranks() const noexcept { return dp * pp * tp * cp; }
};
/// "dp 4 (ZeRO-2) x pp 2 (1f1b) x tp 8"
std::string to_string(const MeshLayout& layout);
/// The keys of section `parallel` that make a run have it.
std::vector<std::string> assignments(const MeshLayout& layout);

/// The settings that the layouts of a search have in common; what is set is not varied.
struct MeshRequest {
  int ranks = 1;
  std::optional<int> pp = {}, virtual_stages = {}, tp = {}, cp = {}, zero = {};
  std::optional<std::string> schedule = {};
};

/// The estimate of a layout by closed forms: enough to compare layouts, before the real engine runs dry for
/// the best.
struct LayoutEstimate {
  MeshLayout layout = {};
  bool recomputes = false;          ///< blocks are recomputed, since their activations would not fit
  double step_s = 0;                ///< the sum of the following
  double compute_s = 0;             ///< the computation of a rank
  double bubble_s = 0;              ///< the time in which a rank waits for other stages
  double layers_s = 0;              ///< collectives within layers, as far as nothing hides them
  double copies_s = 0;              ///< gradients and parameters among copies, likewise
  double update_s = 0, link_s = 0;  ///< the optimizer; copies between tiers that nothing hides
  double activation_bytes = 0, state_bytes = 0;  ///< the bytes of a rank
  double work_bytes = 0;  ///< bytes of a layer's parameters and gradients, and of a pipeline's gradient
};

/// The layouts of `request.ranks` ranks that the model and the step allow and whose states and activations
/// fit what a rank has of the tiers, fastest first by closed forms (Narayanan et al. 2021, arXiv 2104.04473;
/// Rajbhandari et al. 2020). A rank has the budgets of the configuration, or what the machine has. Errors:
/// `invalid` if there is none, naming the nearest number of ranks that has one; `does_not_fit` if none fits,
/// with what the smallest one needs.
Result<std::vector<LayoutEstimate>> mesh_layouts(const TrainConfig& config, const MachineProfile& machine,
                                                 const MeshRequest& request);
/// The first of each dp, pp, tp and cp, in their order.
std::vector<LayoutEstimate> first_of_each_mesh(const std::vector<LayoutEstimate>& estimates);

}  // namespace strata
