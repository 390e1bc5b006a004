#pragma once

#include <cstdint>

#include <strata/kernels/mixers/latent_heads.h>
#include <strata/runtime/float16.h>
#include <strata/simd/math/host_device.h>

/// The elements of a row that latent attention rearranges, for host and device.
namespace strata::kernels::detail {

/// Element `column` of a row of q | k | v; `kv` null: zeros.
template <class T>
STRATA_HD T latent_qkv_element(const LatentHeads& h, const T* q, const T* kv, const T* rotated_key,
                               std::int64_t column) {
  const std::int64_t d = h.plain + std::int64_t{h.rotated}, width = h.heads * d,
                     of_kv = h.plain + std::int64_t{h.value};
  const std::int64_t part = column / width, head = column % width / d, i = column % d;
  if (part == 0) return q[head * d + (i < h.rotated ? h.plain + i : i - h.rotated)];
  if (part == 1 && i < h.rotated) return rotated_key[i];
  if (kv == nullptr) return from_f32<T>(0.0f);
  if (part == 1) return kv[head * of_kv + i - h.rotated];
  return i < h.value ? kv[head * of_kv + h.plain + i] : from_f32<T>(0.0f);
}
/// Element `column` of a row of the gradient of q.
template <class T>
STRATA_HD T latent_dq_element(const LatentHeads& h, const T* dqkv, std::int64_t column) {
  const std::int64_t d = h.plain + std::int64_t{h.rotated}, head = column / d, i = column % d;
  return dqkv[head * d + (i < h.plain ? h.rotated + i : i - h.plain)];
}
template <class T>
STRATA_HD T latent_dkv_element(const LatentHeads& h, const T* dqkv, std::int64_t column) {
  const std::int64_t d = h.plain + std::int64_t{h.rotated}, width = h.heads * d,
                     of_kv = h.plain + std::int64_t{h.value};
  const std::int64_t head = column / of_kv, i = column % of_kv;
  return i < h.plain ? dqkv[width + head * d + h.rotated + i] : dqkv[2 * width + head * d + i - h.plain];
}
template <class T>
STRATA_HD T latent_drotated_element(const LatentHeads& h, const T* dqkv, std::int64_t column) {
  const std::int64_t d = h.plain + std::int64_t{h.rotated}, width = h.heads * d;
  float sum = 0.0f;
  for (std::int64_t head = 0; head < h.heads; ++head) sum = sum + to_f32(dqkv[width + head * d + column]);
  return from_f32<T>(sum);
}
/// Element `column` of a row of the gradient of x of trim_heads, from that of y.
template <class T>
STRATA_HD T untrimmed_element(const LatentHeads& h, const T* dy, std::int64_t column) {
  const std::int64_t d = h.plain + std::int64_t{h.rotated}, head = column / d, i = column % d;
  return i < h.value ? dy[head * h.value + i] : from_f32<T>(0.0f);
}
template <class T>
STRATA_HD T trimmed_element(const LatentHeads& h, const T* x, std::int64_t column) {
  const std::int64_t d = h.plain + std::int64_t{h.rotated};
  return x[column / h.value * d + column % h.value];
}

}  // namespace strata::kernels::detail
