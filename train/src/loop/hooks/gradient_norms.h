#pragma once

#include <cstddef>
#include <vector>

#include "loop/hooks/step_hook.h"
#include "loop/run_loop.h"

namespace strata::detail {

/// Norms of the gradient of a step, for people who watch a run (log.histograms).
class GradientNorms final : public StepHook {
 public:
  explicit GradientNorms(RunLoop& loop);
  /// Reads the norms of the engine's last step. Allocates nothing.
  Status after_step(MetricsLine& line) override;

 private:
  RunLoop& loop_;
  std::vector<std::size_t> trained_;        // parameters, by registration order
  std::vector<std::size_t> layer_of_;       // the index in of_layers_ of each parameter
  std::vector<double> norms_, of_tensors_;  // one for each parameter, one for each trained parameter
  // One for what is before the layers, one for each layer, one for what is behind them; 0: nothing is trained
  // there.
  std::vector<double> of_layers_;
};

}  // namespace strata::detail
