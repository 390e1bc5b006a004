#include <algorithm>

#include <strata/kernels/attention_heads.h>
#include <strata/kernels/cached_attention.h>
#include <strata/ops/ranges.h>
#include <strata/ops/rows.h>
#include <strata/runtime/assert.h>

#include "cached_attention_table.h"
#include "row_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

/// Sizes of the op, and offsets in its tensors.
struct CacheGeometry {
  explicit CacheGeometry(const CachedAttentionArgs& args)
      : a(args),
        heads(args.shape.heads),
        kv_heads(args.shape.kv_heads),
        sequences(args.keys.shape.dim(0)),
        capacity(args.keys.shape.dim(2)),
        d(args.keys.shape.dim(3)),
        width((heads + 2 * kv_heads) * d) {}

  const float* row(std::int64_t r) const { return a.qkv.as<float>() + r * width; }
  std::int64_t position(std::int64_t r) const { return a.positions.as<std::int32_t>()[r]; }
  std::int64_t slot(std::int64_t r) const { return a.slots.as<std::int32_t>()[r]; }
  /// Offset in keys and in values of position 0 of a key head of a sequence.
  std::int64_t cache_of(std::int64_t slot, std::int64_t kv_head) const {
    return (slot * kv_heads + kv_head) * capacity * d;
  }

  const CachedAttentionArgs& a;
  std::int64_t heads, kv_heads, sequences, capacity, d, width;
};

void store(const CacheGeometry& g, std::int64_t r) {
  const std::int64_t slot = g.slot(r), position = g.position(r);
  if (slot < 0) return;
  STRATA_ASSERT(slot < g.sequences && position >= 0 && position < g.capacity, "row ", r, " is position ",
                position, " of ", g.capacity, " of sequence ", slot, " of ", g.sequences);
  for (std::int64_t head = 0; head < g.kv_heads; ++head) {
    const float* key = g.row(r) + (g.heads + head) * g.d;
    const std::int64_t at = g.cache_of(slot, head) + position * g.d;
    std::copy_n(key, g.d, g.a.keys.as<float>() + at);
    std::copy_n(key + g.kv_heads * g.d, g.d, g.a.values.as<float>() + at);
  }
}

// Computes the query heads of one key head for one row. `scratch` has space for a row of scores and, for
// ALiBi, a row of biases.
void attend(const CacheGeometry& g, std::int64_t r, std::int64_t kv_head, float* scratch) {
  const std::int64_t group = g.heads / g.kv_heads;
  float* out = g.a.out.as<float>() + (r * g.heads + kv_head * group) * g.d;
  if (g.slot(r) < 0) {
    std::fill_n(out, group * g.d, 0.0f);
    return;
  }
  const detail::CachedAttentionTable& cached = detail::cached_attention_table();
  const detail::RowTable& table = detail::row_table();
  const CachedAttentionShape& shape = g.a.shape;
  const float scale = attention_scale({.scale = shape.scale}, g.d);
  const std::int64_t all = g.position(r) + 1, n = shape.window == 0 ? all : std::min(all, shape.window);
  const std::int64_t cache = g.cache_of(g.slot(r), kv_head) + (all - n) * g.d;
  float* bias = scratch + g.capacity;
  for (std::int64_t i = 0; i < group; ++i) {
    const std::int64_t head = kv_head * group + i;
    cached.scores(g.row(r) + head * g.d, g.a.keys.as<float>() + cache, scratch, g.d, n);
    if (shape.alibi) {
      const float slope = alibi_slope(head, g.heads);
      for (std::int64_t j = 0; j < n; ++j) bias[j] = slope * static_cast<float>(j - (n - 1));
      table.scale_add(scratch, scale, bias, n);
    }
    if (shape.softcap > 0) table.softcap(scratch, scale, shape.softcap, n);
    table.attention_softmax(scratch, shape.alibi || shape.softcap > 0 ? 1.0f : scale, n);
    cached.weighted_sum(scratch, g.a.values.as<float>() + cache, out + i * g.d, g.d, n);
  }
}

}  // namespace

const detail::CachedAttentionTable& detail::cached_attention_table() noexcept {
  return STRATA_ACTIVE_TABLE(cached_attention_kernels);
}

void cached_attention_host(const CachedAttentionArgs& a, ThreadPool& pool) {
  const CacheGeometry g(a);
  const std::int64_t rows = ops::row_count(a.qkv);
  const std::int64_t pairs = rows * g.kv_heads;
  const std::int64_t scratch_slots = detail::cached_attention_scratch_slots(rows, g.kv_heads);
  ops::parallel_for_ranges(pool, rows, detail::rows_per_item(2 * g.kv_heads * g.d),
                           [&](std::int64_t first, std::int64_t n) {
                             for (std::int64_t r = first; r < first + n; ++r) store(g, r);
                           });
  const std::int64_t floats = g.capacity * (a.shape.alibi ? 2 : 1);
  pool.parallel_for(scratch_slots, [&](std::int64_t scratch_slot) {
    float* scratch = reinterpret_cast<float*>(a.workspace.data) + scratch_slot * floats;
    for (std::int64_t pair = scratch_slot; pair < pairs; pair += scratch_slots)
      attend(g, pair / g.kv_heads, pair % g.kv_heads, scratch);
  });
}

}  // namespace strata::kernels
