#include "trainer/written_params.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <strata/runtime/convert.h>

namespace strata::detail {

Status take_written(const std::byte* written, DType dtype, std::int64_t offset, std::span<float> masters) {
  constexpr std::size_t kPiece = 1024;
  std::array<std::byte, kPiece * sizeof(float)> rounded;
  std::array<float, kPiece> widened;
  const std::size_t width = size_of(dtype);
  const std::byte* from = written + static_cast<std::size_t>(offset) * width;
  for (std::size_t at = 0; at < masters.size(); at += kPiece) {
    const std::span<float> part = masters.subspan(at, std::min(kPiece, masters.size() - at));
    const std::span<const std::byte> given(from + at * width, part.size() * width);
    STRATA_TRY(narrow_from_f32(part, dtype, std::span(rounded).first(given.size())));
    STRATA_TRY(widen_to_f32(dtype, given, std::span(widened).first(part.size())));
    for (std::size_t i = 0; i < part.size(); ++i)
      if (std::memcmp(rounded.data() + i * width, given.data() + i * width, width) != 0) part[i] = widened[i];
  }
  return {};
}

}  // namespace strata::detail
