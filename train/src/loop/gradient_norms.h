#pragma once

#include <span>
#include <vector>

#include <strata/session/session.h>

namespace strata::detail {

/// Norms of the gradient of a step, for people who watch a run.
class GradientNorms {
 public:
  explicit GradientNorms(const TensorTable& tensors);
  /// Reads the norms of the session's last step; call it before the next one. Allocates nothing.
  Status read(const Session& session);

  /// The norm of each trained tensor.
  std::span<const double> of_tensors() const noexcept { return of_tensors_; }
  /// The norms of all that is before the layers, of each layer, and of all that is behind them; 0 where
  /// nothing is trained.
  std::span<const double> of_layers() const noexcept { return of_layers_; }

 private:
  std::vector<std::size_t> trained_;   // parameters, by registration order
  std::vector<std::size_t> layer_of_;  // the index in of_layers_ of each parameter
  std::vector<double> norms_, of_tensors_, of_layers_;
};

}  // namespace strata::detail
