#pragma once

#include <span>
#include <utility>
#include <vector>

#include <strata/session/state_context.h>

namespace strata::detail {

/// The all-reduce that ends a step: norm partials, losses, sums of outputs and flags of all ranks. Of the
/// others each value belongs to one rank, to which the others add zero, so that it is exact; so are sums of
/// integers.
class StepReduction {
 public:
  explicit StepReduction(StateContext& context);

  /// Waits until all ranks have called it. `losses`, of the step's micro-batches, `sums`, of all outputs of
  /// SessionOptions::step_sums or empty, and the norm partials are those of all ranks afterwards; `flags` are
  /// those that any rank has set. All queued norm partials must be complete. Errors: those of the exchange.
  Status run(std::span<float> losses, std::span<double> sums, std::uint32_t& flags);
  /// The same for losses alone, of at most as many micro-batches as a step has.
  Status share(std::span<float> losses);

 private:
  void write(std::span<const float> losses, std::span<const double> sums, std::uint32_t flags);
  void read(std::span<float> losses, std::span<double> sums, std::uint32_t& flags) const;
  std::span<double> shared_sums() const noexcept;
  Status all_reduce(double* begin);

  StateContext& context_;
  std::vector<std::pair<std::int64_t, std::int64_t>> others_;  // ranges of norm partials of other ranks
};

}  // namespace strata::detail
