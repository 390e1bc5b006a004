#pragma once

#include <cstdint>

#include <strata/session/state_context.h>

namespace strata::detail {

/// The exchange at the end of a step between the ranks that share a copy of the model. Every rank has the
/// norm of its parts of the gradient.
class ModelReduction {
 public:
  explicit ModelReduction(StateContext& context) : context_(context) {}

  /// Adds the first `n` norm partials of all stages of a pipeline, each of which has those of its tensors and
  /// zeros. Does nothing if there is one. Errors: those of the exchange.
  Status add_stages(std::size_t n);
  /// Adds the squares of the other ranks, in the order of the ranks, and sets the flags that any of them has
  /// set. Does nothing if no ranks share the model. Errors: those of the exchange.
  Status run(double& square_sum, std::uint32_t& flags);
  /// The smallest of the ranks' values.
  Status least(double& value);

 private:
  Status all_reduce(std::size_t n, Reduction reduction);

  StateContext& context_;
};

}  // namespace strata::detail
