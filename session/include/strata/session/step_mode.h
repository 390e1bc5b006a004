#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata {

/// When the update of a step runs. All modes give bit-identical results.
enum class StepMode : std::uint8_t {
  automatic,    ///< two_phase, or speculative while its guesses are mostly right
  serial,       ///< after the norm; the next forward starts when all chunks are updated
  two_phase,    ///< after the norm, chunk by chunk, overlapped with the next forward and in its order
  speculative,  ///< during backward as if nothing were clipped, within the undo log; wrong guesses are redone
  hybrid,       ///< speculative, with the states of the chunks that backward finishes last on the device
};
inline constexpr std::array<StepMode, 5> kStepModes = {
    StepMode::automatic, StepMode::serial, StepMode::two_phase, StepMode::speculative, StepMode::hybrid};
constexpr std::string_view to_string(StepMode mode) noexcept {
  constexpr std::array<std::string_view, kStepModes.size()> names = {"auto", "serial", "two_phase",
                                                                     "speculative", "hybrid"};
  return names[static_cast<std::size_t>(mode)];
}
constexpr std::optional<StepMode> step_mode_named(std::string_view name) noexcept {
  for (const StepMode mode : kStepModes)
    if (to_string(mode) == name) return mode;
  return std::nullopt;
}

}  // namespace strata
