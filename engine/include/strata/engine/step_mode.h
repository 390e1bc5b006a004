#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata {

/// When a step's update runs. All modes give the same bits.
enum class StepMode : std::uint8_t {
  automatic,    ///< two_phase, or speculative while its guesses hold
  serial,       ///< after the norm, and the next forward after all of it
  two_phase,    ///< after the norm, chunk by chunk in the order of the next forward, and under it
  speculative,  ///< during backward as if nothing were clipped, within the undo log; what proves wrong is
                ///< redone
  hybrid,       ///< speculative, with the states of the last chunks of backward on the device
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
