#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <strata/dispatch/rows.h>
#include <strata/runtime/tensor_view.h>

/// How the rows of experts are divided into panels, for the host.
namespace strata::kernels::detail {

/// The rows of a panel, whose bits are those of all rows. A GEMM of more or fewer rows may have other bits
/// where sums are no chains, depending on CPU and shape (panel_heights.h).
inline constexpr std::int64_t kExpertPanel = 64;

/// The rows [begin, end) of an expert, within those of the tensor whatever the offsets are.
struct ExpertRows {
  std::int64_t begin, end;
  std::int64_t count() const noexcept { return end - begin; }
};
inline ExpertRows rows_of_expert(const TensorView& offsets, std::int64_t expert, std::int64_t rows) noexcept {
  const auto* const at = offsets.as<std::int32_t>() + expert;
  const std::int64_t begin = std::clamp<std::int64_t>(at[0], 0, rows);
  return {begin, std::clamp<std::int64_t>(at[1], begin, rows)};
}

/// The last rows of a tensor, of which panels have fewer than kExpertPanel, are copied to a workspace and are
/// followed there by zeros. All other panels are filled up with the rows of the next experts.
inline constexpr std::int64_t kTailRows = kExpertPanel - 1, kTailPanelRows = kTailRows + kExpertPanel;
constexpr std::int64_t first_tail_row(std::int64_t rows) noexcept {
  return rows > kTailRows ? rows - kTailRows : 0;
}
constexpr std::size_t tail_bytes(std::int64_t columns, DType dtype) noexcept {
  return static_cast<std::size_t>(kTailPanelRows * columns) * size_of(dtype);
}

}  // namespace strata::kernels::detail
