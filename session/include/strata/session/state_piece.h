#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// Elements [offset, offset + n) of the tensor `name`, where n is the number of values that come with it.
struct StatePiece {
  std::string_view name;
  std::int64_t offset = 0;
  std::int64_t n_elems = 0;  ///< the number of elements of the whole tensor
  std::int32_t tensor = -1;  ///< index into StatePlan::tensors
};
/// Which states a pass over them covers.
enum class VisitScope : std::uint8_t {
  all,
  saved,  ///< tensors that checkpoints hold (GroupKey::saved)
};
constexpr bool covers(VisitScope scope, bool is_saved) noexcept {
  return scope == VisitScope::all || is_saved;
}

using VisitState = std::function<Status(const StatePiece& piece, std::span<const float> values)>;
using FillState = std::function<Status(const StatePiece& piece, std::span<float> values)>;

}  // namespace strata
