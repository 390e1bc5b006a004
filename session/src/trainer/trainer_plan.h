#pragma once

#include <array>
#include <memory>
#include <span>

#include <strata/session/optimizer_session.h>
#include <strata/session/pass_schedule.h>

namespace strata::detail {

/// What a chunk holds of parameters that are a trainer's, as far as their dtype and the optimizer need it.
inline constexpr std::array<Payload, 3> kTrainerStates = {Payload::master, Payload::m, Payload::v};

/// OptimizerSession::plan().
Result<std::unique_ptr<const StatePlan>> plan_of_trainer(std::span<const TrainerParam> params,
                                                         SessionOptions options);
/// A step uses the states of one chunk after the other.
PassSchedule schedule_of_trainer(const StatePlan& plan);

/// Whether parameters and gradients may be of this dtype.
bool is_trained_dtype(DType dtype) noexcept;

}  // namespace strata::detail
