#pragma once

#include <vector>

#include <strata/engine/run_plan.h>
#include <strata/graph/op_attrs.h>
#include <strata/runtime/tensor_view.h>
#include <strata/session/state_context.h>

namespace strata::detail {

/// Queues the messages of programs on the collective stream, where they travel beside what is computed from
/// their begin to their end. Allocates nothing after construction.
class ProgramMessages {
 public:
  /// All references outlive it.
  ProgramMessages(StateContext& context, const RunPlan& plan);

  /// `in` and `out`: the first operand and result; a begin of a receive has no operand.
  Status queue(Op op, const MessageAttrs& attrs, const TensorView& in, const TensorView& out);

 private:
  StateContext& context_;
  std::vector<Event> passed_;  // indexed by number
};

}  // namespace strata::detail
