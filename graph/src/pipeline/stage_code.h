#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <strata/graph/pipeline_schedule.h>
#include <strata/graph/program.h>

namespace strata::detail {

/// When a stage runs an instruction: forward; with the gradients that other stages wait for; or with those of
/// weights, which nobody does.
enum class StagePhase : std::uint8_t { forward, input_gradient, weight_gradient };
inline constexpr int kStagePhases = 3;

/// The instructions of each stage.
struct StageCode {
  static constexpr std::int32_t kEverywhere = -1;  ///< constants, which every rank computes
  std::vector<std::int32_t> stage;                 ///< the stage of each instruction
  std::vector<StagePhase> phase;                   ///< the phase of each instruction
  /// The instructions of each stage and phase, in order.
  std::vector<std::array<std::vector<std::size_t>, kStagePhases>> code;
  std::vector<std::size_t> constants;

  const std::vector<std::size_t>& of(std::int32_t stage_number, StagePhase of_phase) const {
    return code[static_cast<std::size_t>(stage_number)][static_cast<std::size_t>(of_phase)];
  }
};
StageCode stage_code(const Program& program, std::span<const std::int32_t> stage_of_region,
                     std::int32_t stages);

/// The phases of a stage that a task runs, one after the other.
std::span<const StagePhase> phases_of(StageWork work) noexcept;

}  // namespace strata::detail
