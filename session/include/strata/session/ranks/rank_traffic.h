#pragma once

#include <cstdint>

#include <strata/session/state_plan.h>
#include <strata/session/use_trace.h>

namespace strata {

/// Bytes that this rank sends to others in one step; it receives as many.
struct RankTraffic {
  std::uint64_t gradients = 0;   ///< micro-batches' gradients, or the ranks' sums of them
  std::uint64_t parameters = 0;  ///< gathers
  std::uint64_t in_forward = 0;  ///< the part of `parameters` that is gathered for a first use in forward
  std::uint64_t control = 0;     ///< norm partials, losses and flags
  std::uint64_t shared = 0;      ///< exchanges of ranks that share a copy of the model
  std::uint64_t all() const noexcept { return gradients + parameters + control + shared; }
};

/// The traffic of a step of `plan` whose passes are `uses`, without repeated passes after an overflow. With N
/// ranks, k micro-batches a rank, shards by s ranks and n elements, padding included: gradients k (N-1)/N n
/// e_grad, or 4 (N-1)/N n with GradientReduce::once, and 4 (N/s - 1)/N n for what ranks hold beyond what they
/// sum; parameters g (s-1)/s n e_param, where g is the number of gathers of a chunk. The collectives of the
/// passes themselves (UseTrace::Position::sent_bytes) come k times. With GradientReduce::in_program,
/// gradients are what the passes add up over ranks (UseTrace::Position::summed_bytes), and nothing else.
RankTraffic rank_traffic(const StatePlan& plan, const UseTrace& uses);

}  // namespace strata
