#include <strata/kernels/cached_attention.h>

#include <algorithm>

#include <strata/simd/convert.h>
#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/attention_heads.h>
#include <strata/runtime/assert.h>

#include "attention/cached_attention_sizes.h"
#include "attention/check_heads.h"
#include "attention/head_dim.h"
#include "attention/merge_heads.h"
#include "dtype_dispatch.h"
#include "few_rows_table.h"
#include "row_table.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

/// Sizes of the op, and offsets in its tensors.
template <class T>
struct CacheGeometry {
  explicit CacheGeometry(const CachedAttentionArgs& args)
      : a(args),
        heads(args.shape.heads),
        kv_heads(args.shape.kv_heads),
        sequences(args.keys.shape.dim(0)),
        capacity(args.keys.shape.dim(2)),
        d(args.keys.shape.dim(3)),
        width((heads + 2 * kv_heads) * d) {}

  const T* row(std::int64_t r) const { return a.qkv.as<T>() + r * width; }
  T* keys() const { return a.keys.as<T>(); }
  T* values() const { return a.values.as<T>(); }
  T* out() const { return a.out.as<T>(); }
  std::int64_t position(std::int64_t r) const { return a.positions.as<std::int32_t>()[r]; }
  std::int64_t slot(std::int64_t r) const { return a.slots.as<std::int32_t>()[r]; }
  /// Offset in keys and in values of position 0 of a key head of a sequence.
  std::int64_t cache_of(std::int64_t slot, std::int64_t kv_head) const {
    return (slot * kv_heads + kv_head) * capacity * d;
  }

  const CachedAttentionArgs& a;
  std::int64_t heads, kv_heads, sequences, capacity, d, width;
};

template <class T>
void store(const CacheGeometry<T>& g, std::int64_t r) {
  const std::int64_t slot = g.slot(r), position = g.position(r);
  if (slot < 0) return;
  STRATA_ASSERT(slot < g.sequences && position >= 0 && position < g.capacity, "row ", r, " is position ",
                position, " of ", g.capacity, " of sequence ", slot, " of ", g.sequences);
  for (std::int64_t head = 0; head < g.kv_heads; ++head) {
    const T* key = g.row(r) + (g.heads + head) * g.d;
    const std::int64_t at = g.cache_of(slot, head) + position * g.d;
    std::copy_n(key, g.d, g.keys() + at);
    std::copy_n(key + g.kv_heads * g.d, g.d, g.values() + at);
  }
}

/// The scratch of a slot of the workspace: scores of some query heads, a row of biases for ALiBi, and these
/// heads' query and result in f32.
struct CacheScratch {
  CacheScratch(const CachedAttentionShape& shape, std::int64_t positions, std::int64_t d)
      : capacity(positions),
        heads(std::min<std::int64_t>(shape.heads / shape.kv_heads, 8)),
        bias(heads * capacity),
        query(bias + (shape.alibi ? capacity : 0)),
        out(query + heads * d),
        floats(out + heads * d) {}
  std::int64_t capacity, heads;  // as many query heads share a pass over the cache
  std::int64_t bias, query, out, floats;
};

/// Turns the products of a query with the n keys that it sees into weights.
template <class T>
void softmax_of(const CacheGeometry<T>& g, std::int64_t head, float* scores, float* bias, std::int64_t n) {
  const detail::RowTable& table = detail::row_table();
  const CachedAttentionShape& shape = g.a.shape;
  const float scale = attention_scale({.scale = shape.scale}, g.d);
  if (shape.alibi) {
    const float slope = alibi_slope(
        {.heads = g.heads, .alibi_heads = shape.alibi_heads, .alibi_first = shape.alibi_first}, head);
    for (std::int64_t j = 0; j < n; ++j) bias[j] = slope * static_cast<float>(j - (n - 1));
    table.scale_add(scores, scale, bias, n);
  }
  if (shape.softcap > 0) table.softcap(scores, scale, shape.softcap, n);
  const float lse = table.attention_softmax(scores, shape.alibi || shape.softcap > 0 ? 1.0f : scale, n);
  if (!dispatch::is_present(g.a.sinks)) return;
  const float left = detail::merge_lse(lse, to_f32(g.a.sinks.template as<T>()[head])).a;
  for (std::int64_t j = 0; j < n; ++j) scores[j] *= left;
}

/// Computes query heads [first_head, first_head + heads) of one key head for one row, with the bits of
/// attention_forward: chains begin with every kChain-th position of the sequence.
template <class T>
void attend_heads(const CacheGeometry<T>& g, std::int64_t r, std::int64_t kv_head, std::int64_t first_head,
                  std::int64_t heads, const CacheScratch& s, float* scratch) {
  const detail::FewRowsTable<T>& table = detail::few_rows_table<T>();
  const std::int64_t all = g.position(r) + 1, window = g.a.shape.window;
  const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(0, all - window), n = all - first;
  const std::int64_t cache = g.cache_of(g.slot(r), kv_head);
  float *const scores = scratch, *const query = scratch + s.query, *const out = scratch + s.out;
  simd::widen(g.row(r) + first_head * g.d, query, heads * g.d);
  table.by_columns(query, g.d, g.keys() + cache + first * g.d, g.d, scores, s.capacity, heads, n, g.d, false);
  for (std::int64_t i = 0; i < heads; ++i)
    softmax_of(g, first_head + i, scores + i * s.capacity, scratch + s.bias, n);
  for (std::int64_t key = first, length = 0; key < all; key += length) {
    length = std::min(all - key, detail::kChain - key % detail::kChain);
    table.by_rows(scores + (key - first), s.capacity, g.values() + cache + key * g.d, g.d, out, g.d, heads,
                  g.d, length, key > first);
  }
  simd::narrow(out, g.out() + (r * g.heads + first_head) * g.d, heads * g.d);
}

/// Computes the query heads of one key head for one row.
template <class T>
void attend(const CacheGeometry<T>& g, std::int64_t r, std::int64_t kv_head, const CacheScratch& s,
            float* scratch) {
  const std::int64_t group = g.heads / g.kv_heads, begin = kv_head * group;
  if (g.slot(r) < 0) {
    std::fill_n(g.out() + (r * g.heads + begin) * g.d, group * g.d, T{});
    return;
  }
  for (std::int64_t head = begin; head < begin + group; head += s.heads)
    attend_heads(g, r, kv_head, head, std::min(s.heads, begin + group - head), s, scratch);
}

}  // namespace

STRATA_OP(cached_attention, CachedAttentionArgs);

namespace {

template <class T>
void run_host(const CachedAttentionArgs& a, ThreadPool& pool) {
  const CacheGeometry<T> g(a);
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const std::int64_t pairs = rows * g.kv_heads;
  const std::int64_t scratch_slots = detail::cached_attention_scratch_slots(rows, g.kv_heads);
  if (!a.shape.is_stored)
    dispatch::parallel_for_ranges(pool, rows, detail::rows_per_item(2 * g.kv_heads * g.d),
                                  [&](std::int64_t first, std::int64_t n) {
                                    for (std::int64_t r = first; r < first + n; ++r) store(g, r);
                                  });
  const CacheScratch sizes(a.shape, g.capacity, g.d);
  pool.parallel_for(scratch_slots, [&](std::int64_t scratch_slot) {
    float* scratch = reinterpret_cast<float*>(a.workspace.data) + scratch_slot * sizes.floats;
    for (std::int64_t pair = scratch_slot; pair < pairs; pair += scratch_slots)
      attend(g, pair / g.kv_heads, pair % g.kv_heads, sizes, scratch);
  });
}

}  // namespace

void cached_attention_host(const CachedAttentionArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.qkv.dtype, [&]<class T>(std::type_identity<T>) { run_host<T>(a, pool); });
}

std::size_t cached_attention_workspace_bytes(std::int64_t rows, std::int64_t capacity, std::int64_t head_dim,
                                             const CachedAttentionShape& shape) noexcept {
  const std::int64_t on_host = detail::cached_attention_scratch_slots(rows, shape.kv_heads) *
                               CacheScratch(shape, capacity, head_dim).floats;
  const std::int64_t on_device =
      rows > 0 ? detail::cached_attention_rows_at_once(rows, shape.heads) * shape.heads * capacity : 0;
  return static_cast<std::size_t>(std::max(on_host, on_device)) * sizeof(float);
}

Status cached_attention_async(Backend& backend, Stream& stream, const CachedAttentionArgs& a) {
  const CachedAttentionShape& s = a.shape;
  const std::int64_t rows = dispatch::row_count(a.qkv);
  const std::int64_t width = dispatch::row_length(a.qkv);
  const std::int64_t d = detail::head_dim(a.qkv, s);
  const std::int64_t sequences = a.keys.shape.rank == 4 ? a.keys.shape.dim(0) : 0;
  const std::int64_t capacity = a.keys.shape.rank == 4 ? a.keys.shape.dim(2) : 0;
  const Shape cache = {sequences, s.kv_heads, capacity, d};
  dispatch::Check check("cached_attention", "qkv", a.qkv);
  STRATA_TRY(detail::check_heads(check.rows("qkv", a.qkv, rows, width), s, width)
                 .require(s.window >= 0 && s.scale >= 0 && s.softcap >= 0 && (s.softcap == 0 || !s.alibi),
                          "window is ", s.window, ", scale is ", s.scale, ", softcap is ", s.softcap,
                          "; each must be 0 or more, and softcap above 0 only without ALiBi")
                 .elements("positions", a.positions, DType::i32, rows)
                 .elements("slots", a.slots, DType::i32, rows)
                 .shape("keys", a.keys, a.qkv.dtype, cache)
                 .shape("values", a.values, a.qkv.dtype, cache)
                 .rows("out", a.out, rows, d * s.heads)
                 .optional_elements("sinks", a.sinks, a.qkv.dtype, s.heads)
                 .workspace(a.workspace, cached_attention_workspace_bytes(rows, capacity, d, s))
                 .status());
  return dispatch::enqueue(backend, stream, cached_attention_op, a, {a.qkv, a.positions, a.slots, a.sinks},
                           {a.out, a.keys, a.values}, a.workspace);
}

}  // namespace strata::kernels
