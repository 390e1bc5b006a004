#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/session/state_plan.h>
#include <strata/session/use_trace.h>

namespace strata {

// The steps of planning a run's states, in their order. The caller describes the tensors and says whether the
// run trains (StatePlan::trace.training), lays the states out, describes the accesses and its own memory,
// places the states, and plans the undo log.

/// Errors: `invalid`, naming the setting.
Status check_options(const SessionOptions& options);

/// Whether parameters and moments alone fit into all tiers together: a cheap test for callers that ask many
/// times.
bool states_may_fit(const TensorTable& tensors, bool trains, const SessionOptions& options);

/// Upper bounds for the search for a chunk size, largest first; 0: no bound. The search ignores windows, so
/// if its choice does not fit, smaller chunks may. `arena` is the size of the activations on the device, and
/// only needed if searches_chunk_size().
std::vector<std::int64_t> chunk_bounds(std::size_t arena, const SessionOptions& options);
bool searches_chunk_size(const SessionOptions& options);

/// Completes `plan.tensors` with the formats of states, and sets rules, layout, prefetch depth and the states
/// that are held. The search for a chunk size considers sizes up to `max_chunk_elems`; 0: no limit. Errors:
/// `invalid`, naming the parameter group; those of ChunkLayout::create().
Status lay_out_states(StatePlan& plan, std::int64_t max_chunk_elems);

/// Sets the prefetch depth by the device's budget. lay_out_states() does so unless the options give it.
void choose_prefetch(StatePlan& plan);

/// Sets the fixed bytes of the trace by the driver's memory and by what a session needs for itself.
void add_fixed_bytes(StatePlan& plan);

PlacementRequest placement_request(const SessionOptions& options);
/// The last pass of each trainee's step, in their order; at least one.
using LastPasses = std::span<const UseTrace* const>;
/// Places the states and leaves room for the undo log if both fit, else as if there were no log. Nothing if
/// they do not fit.
std::optional<Placement> place_states(const StatePlan& plan, LastPasses last_passes);

/// Returns how much pinned memory the placement of `plan`, as far as it is laid out, shall leave to the undo
/// log: the amount requested, or else room for the parameters that are updated speculatively, as nvme may
/// keep the previous generation of their other states.
std::uint64_t undo_reserve(const StatePlan& plan, LastPasses last_passes);
/// Chooses the chunks that are updated before the norm is known, reserves memory for their previous states,
/// and adds a note. Needs the placement.
void plan_undo_log(StatePlan& plan, LastPasses last_passes);

/// A parameter of a trainer's model: `shape` elements of `dtype` (f32, bf16 or f16), contiguous in the
/// trainer's memory.
struct TrainerParam {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
  bool trainable = true;  ///< if false, it is held, without a master, and never updated
};
/// The memory that a session holds for a trainer that computes in its own memory.
enum class TrainerHolds : std::uint8_t {
  states,  ///< the states that the optimizer needs beside parameters and gradients
  params,  ///< the parameters, too, and the gradients of a step, accumulated in f32
};
/// Errors: `invalid` with all problems of the parameters.
Status check_trainer_params(std::span<const TrainerParam> params, TrainerHolds holds);
/// Plans the states of a trainer. Of `options`, those of passes, gradients, clipping and ranks are not used;
/// the device budget is 0. Errors: `invalid` with all problems of the parameters; `does_not_fit`.
Result<std::unique_ptr<StatePlan>> plan_trainer_states(std::span<const TrainerParam> params,
                                                       SessionOptions options,
                                                       TrainerHolds holds = TrainerHolds::states);

}  // namespace strata
