#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/simd/isa_table.h>
#include <strata/runtime/float16.h>

namespace strata::kernels::detail {

/// This many (row, key head) pairs are processed at a time, each in its own slot of the workspace.
constexpr std::int64_t cached_attention_scratch_slots(std::int64_t rows, std::int64_t kv_heads) noexcept {
  return std::min<std::int64_t>(rows * kv_heads, 32);
}

/// A GPU has the scores of all heads of this many rows in the workspace at once: of 256 heads in all, which
/// occupy it, or of one row.
constexpr std::int64_t cached_attention_rows_at_once(std::int64_t rows, std::int64_t heads) noexcept {
  return std::clamp<std::int64_t>(256 / std::max<std::int64_t>(heads, 1), 1, std::max<std::int64_t>(rows, 1));
}

/// SIMD kernels over the cache of one (sequence, key head): n consecutive rows of d elements of stored dtype
/// T. They compute in f32 and round once, when they store. Each instruction set has one table per T, and all
/// give the same bits.
template <class T>
struct CachedAttentionTable {
  /// scores[j] = query . keys[j].
  void (*scores)(const T* query, const T* keys, float* scores, std::int64_t d, std::int64_t n);
  /// out = the sum of weights[j] * values[j], in order of j.
  void (*weighted_sum)(const float* weights, const T* values, T* out, std::int64_t d, std::int64_t n);
};

/// The table of simd::active_isa().
template <class T>
const CachedAttentionTable<T>& cached_attention_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::CachedAttentionTable<float>, cached_attention_f32)
STRATA_DECLARE_ISA_TABLE(detail::CachedAttentionTable<bf16>, cached_attention_bf16)
STRATA_DECLARE_ISA_TABLE(detail::CachedAttentionTable<f16>, cached_attention_f16)
}  // namespace strata::kernels
