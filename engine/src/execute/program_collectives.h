#pragma once

#include <cstdint>
#include <vector>

#include <strata/engine/run_plan.h>
#include <strata/graph/op_attrs.h>
#include <strata/runtime/tensor_view.h>
#include <strata/session/state_context.h>

namespace strata::detail {

/// Creates the groups that the collectives of a program need besides those of whole axes. A collective call
/// of all ranks.
Status prepare_collective(ModelGroups& groups, Op op, const CollectiveAttrs& attrs);

/// Queues the collectives of programs: on the compute stream, except shifts, which travel beside it from
/// their begin to their end. Allocates nothing after construction.
class ProgramCollectives {
 public:
  /// All references outlive it.
  ProgramCollectives(StateContext& context, const RunPlan& plan);

  /// Queues a collective. For accumulate_over_ranks, `out` already has the rank's part.
  Status queue(Op op, const CollectiveAttrs& attrs, const TensorView& in, const TensorView& out);

 private:
  Status begin_shift(const CollectiveAttrs& attrs, const TensorView& in, const TensorView& out);

  StateContext& context_;
  std::vector<Event> shifted_;  // indexed by number
};

}  // namespace strata::detail
