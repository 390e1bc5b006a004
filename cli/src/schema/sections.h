#pragma once

#include <span>

#include <strata/runtime/config.h>

// The parts of train_schema(), each in the order in which `config show` prints it; the keys of a section
// stand together.
namespace strata::cli {

inline constexpr double kMaxDim = 1 << 20;  // of one model dimension: products of two stay far below 2^63
inline constexpr double kMaxCount = 1 << 30;
inline constexpr double kMaxSteps = 1e15;

std::span<const KeySpec> model_and_data_keys() noexcept;  ///< model, data
std::span<const KeySpec> training_keys() noexcept;        ///< train, optim
std::span<const KeySpec> placement_keys() noexcept;       ///< memory, offload, io, cpu
std::span<const KeySpec> outputs_keys() noexcept;         ///< log, checkpoint

}  // namespace strata::cli
