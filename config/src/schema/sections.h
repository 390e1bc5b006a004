#pragma once

#include <span>

#include "schema/train_key.h"

// The parts of train_keys(). `config show` prints the keys in this order; the keys of a section are
// contiguous.
namespace strata {

inline constexpr double kMaxDim = 1 << 20;  // one model dimension; the product of two stays far below 2^63
inline constexpr double kMaxCount = 1 << 30;
inline constexpr double kMaxSteps = 1e15;

std::span<const TrainKey> model_and_data_keys() noexcept;  ///< model, data
std::span<const TrainKey> training_keys() noexcept;        ///< train
std::span<const TrainKey> optimizer_keys() noexcept;       ///< optim
std::span<const TrainKey> adapter_keys() noexcept;         ///< adapter
std::span<const TrainKey> align_keys() noexcept;           ///< align
std::span<const TrainKey> placement_keys() noexcept;       ///< memory, offload, io, cpu
std::span<const TrainKey> parallel_keys() noexcept;        ///< parallel
std::span<const TrainKey> outputs_keys() noexcept;         ///< log, checkpoint

/// All of them, in the order of the schema.
std::span<const TrainKey> train_keys();
/// The names of other programs for the keys.
std::span<const OtherWord> other_words() noexcept;

}  // namespace strata
