#pragma once

#include <algorithm>
#include <cstdint>

#include <strata/cpuopt/isa_table.h>

namespace strata::kernels::detail {

/// This many (row, key head) pairs are processed at a time, each in its own slot of the workspace.
constexpr std::int64_t cached_attention_scratch_slots(std::int64_t rows, std::int64_t kv_heads) noexcept {
  return std::min<std::int64_t>(rows * kv_heads, 32);
}

/// SIMD kernels over the cache of one (sequence, key head): n consecutive rows of d elements. Each
/// instruction set has one table, and all give the same bits. Only one function of cached_attention_kernels.h
/// reads the cache, so a narrower stored dtype needs only one more instantiation.
struct CachedAttentionTable {
  /// scores[j] = query . keys[j].
  void (*scores)(const float* query, const float* keys, float* scores, std::int64_t d, std::int64_t n);
  /// out = the sum of weights[j] * values[j], in order of j.
  void (*weighted_sum)(const float* weights, const float* values, float* out, std::int64_t d, std::int64_t n);
};

/// The table of cpuopt::active_isa().
const CachedAttentionTable& cached_attention_table() noexcept;

}  // namespace strata::kernels::detail

namespace strata::kernels {
STRATA_DECLARE_ISA_TABLE(detail::CachedAttentionTable, cached_attention_kernels)
}  // namespace strata::kernels
