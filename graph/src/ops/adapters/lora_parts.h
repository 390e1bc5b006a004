#pragma once

#include <cstdint>

#include <strata/graph/lora_attrs.h>

// Sizes of a matrix's parts that the ops of low-rank adapters need.
namespace strata::detail {

/// Sums over the parts.
struct PartSizes {
  std::int64_t ranks = 0, rows = 0, elems = 0;  ///< elems: of B
  bool in_order = true;  ///< there are parts, which follow each other within the matrix
};
/// `rows`: of the matrix.
PartSizes sizes_of(const LoraAttrs& parts, std::int64_t rows) noexcept;

}  // namespace strata::detail
