#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <strata/graph/shard_placement.h>

namespace strata::detail {

/// An op on the way from one placement to another.
struct ConversionStep {
  Op op;
  Attrs attrs;
};
/// The steps that turn a value in one placement into the same in another; none if nothing can. `whole` is its
/// shape.
std::optional<std::vector<ConversionStep>> conversion(const ShardPlacement& from, const ShardPlacement& to,
                                                      const Shape& whole, const ShardAxis& axis);
/// Bytes that a rank sends for these steps, forward and, for a value with a gradient, backward.
double bytes_of(const std::vector<ConversionStep>& steps, const ValueInfo& whole, bool has_grad, int ranks);

}  // namespace strata::detail
