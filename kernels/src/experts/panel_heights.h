#pragma once

#include <cstdint>

#include "experts/expert_panels.h"
#include "gemm/gemm.h"

namespace strata::kernels::detail {

/// The heights of the GEMMs of a product: 1 to `few` rows, or multiples of `unit` up to `most`.
struct PanelHeights {
  std::int64_t few, unit, most;
  bool any() const noexcept { return unit == 1; }
};
/// The rows of the highest GEMM.
inline constexpr std::int64_t kMostPanelRows = 3 * kExpertPanel;

/// The heights at which a row has the bits that it has in a GEMM of kExpertPanel rows: higher ones cost less
/// per row, and lower ones waste less on experts with few rows, of which decoding has one or two. Sums by
/// chains give a row the same bits at any height (gemm_chains.h); of other GEMMs it is found out. `panel` is
/// the GEMM of one panel, of which dtype, flags, extents and leading dimensions matter. The first call with a
/// shape multiplies pseudo-random rows at each height and compares all bits, which takes about as long as
/// sixty panels. The answer affects only speed, as a height that gives other bits is not used. Thread-safe.
PanelHeights panel_heights(const Gemm& panel);

}  // namespace strata::kernels::detail
