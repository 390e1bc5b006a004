#pragma once

#include <span>

#include <strata/runtime/config/config.h>

// The parts of train_schema(). `config show` prints the keys in this order; the keys of a section are
// contiguous.
namespace strata {

inline constexpr double kMaxDim = 1 << 20;  // one model dimension; the product of two stays far below 2^63
inline constexpr double kMaxCount = 1 << 30;
inline constexpr double kMaxSteps = 1e15;

std::span<const KeySpec> model_and_data_keys() noexcept;  ///< model, data
std::span<const KeySpec> training_keys() noexcept;        ///< train, optim
std::span<const KeySpec> placement_keys() noexcept;       ///< memory, offload, io, cpu
std::span<const KeySpec> outputs_keys() noexcept;         ///< log, checkpoint

}  // namespace strata
