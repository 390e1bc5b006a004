#pragma once

#include <strata/kernels/lora_parts.h>

namespace strata {

/// Rows of a matrix that a low-rank adapter changes, and the adapter's rank.
using LoraPart = kernels::LoraPart;
/// Parts in the order of their rows, which do not overlap.
using LoraAttrs = kernels::LoraParts;

}  // namespace strata
