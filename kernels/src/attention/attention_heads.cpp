#include <strata/kernels/attention_heads.h>

#include <cmath>

namespace strata::kernels {

std::string_view to_string(AttentionBackend backend) noexcept {
  switch (backend) {
    case AttentionBackend::host:
      return "host";
    case AttentionBackend::mma:
      return "mma";
    case AttentionBackend::wgmma:
      return "wgmma";
    case AttentionBackend::cudnn:
      return "cudnn";
  }
  return "?";
}

float attention_scale(const AttentionHeads& shape, std::int64_t head_dim) noexcept {
  return shape.scale > 0 ? shape.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

float alibi_slope(std::int64_t head, std::int64_t heads) noexcept {
  std::int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const double base = head < power ? -8.0 / static_cast<double>(power) : -4.0 / static_cast<double>(power);
  const std::int64_t exponent = head < power ? head + 1 : 2 * (head - power) + 1;
  return static_cast<float>(std::exp2(base * static_cast<double>(exponent)));
}

float alibi_slope(const AttentionHeads& shape, std::int64_t head) noexcept {
  return alibi_slope(shape.alibi_first + head, shape.alibi_heads > 0 ? shape.alibi_heads : shape.heads);
}

}  // namespace strata::kernels
