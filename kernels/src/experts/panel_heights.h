#pragma once

#include <cstdint>

#include "gemm/gemm.h"

namespace strata::kernels::detail {

/// The most panels that one GEMM multiplies.
inline constexpr std::int64_t kMostPanels = 3;

/// How many panels one GEMM may multiply: kMostPanels if rows of panels that are multiplied together have the
/// bits of panels that are multiplied alone, and else 1. `panel` is the GEMM of one panel, of which dtype,
/// flags, extents and leading dimensions matter. The first call with a shape multiplies pseudo-random panels
/// both ways and compares all bits, which takes about as long as eight panels; the answer affects only speed,
/// as no GEMM of several panels is used where it has other bits. Thread-safe.
std::int64_t panels_together(const Gemm& panel);

}  // namespace strata::kernels::detail
