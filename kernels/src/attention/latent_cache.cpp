#include <strata/kernels/mixers/latent_cache.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/runtime/assert.h>

#include "attention/latent_rows.h"
#include "dtype_dispatch.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

using dispatch::row_count;

/// The rows of a call.
struct CallRows {
  const std::int32_t *positions, *slots;
  std::int64_t n = 0;
  /// The last position of a sequence that a row can see; -1 if none is of it.
  std::int64_t last(std::int64_t slot) const {
    std::int64_t last = -1;
    for (std::int64_t r = 0; r < n; ++r)
      if (slots[r] == slot) last = std::max(last, std::int64_t{positions[r]});
    return last;
  }
};
template <class Args>
CallRows rows_of(const Args& a) {
  return {a.positions.template as<std::int32_t>(), a.slots.template as<std::int32_t>(),
          a.positions.n_elems()};
}

/// Calls body(slot, position, whether a row of the call can see it) for all positions of the cache, `width`
/// elements of which are written.
template <class Body>
void for_each_position(const CallRows& rows, const TensorView& cache, std::int64_t width, ThreadPool& pool,
                       const Body& body) {
  const std::int64_t capacity = cache.shape.dim(1);
  dispatch::parallel_for_ranges(pool, cache.shape.dim(0) * capacity, detail::rows_per_item(width),
                                [&](std::int64_t at, std::int64_t n) {
                                  std::int64_t of = -1, last = -1;
                                  for (const std::int64_t end = at + n; at < end; ++at) {
                                    const std::int64_t slot = at / capacity;
                                    if (slot != of) last = rows.last(of = slot);
                                    body(slot, at % capacity, at % capacity <= last);
                                  }
                                });
}

template <class T>
void store(const CachedLatentsArgs& a, const CallRows& rows, std::int64_t r) {
  const std::int64_t slot = rows.slots[r], position = rows.positions[r],
                     rank = dispatch::row_length(a.latent), capacity = a.cache.shape.dim(1);
  if (slot < 0) return;
  STRATA_ASSERT(slot < a.cache.shape.dim(0) && position >= 0 && position < capacity, "row ", r,
                " is position ", position, " of ", capacity, " of sequence ", slot, " of ",
                a.cache.shape.dim(0));
  T* const into = a.cache.as<T>() + (slot * capacity + position) * (rank + a.heads.rotated);
  const T* const shared = a.qkv.as<T>() + r * 3 * a.heads.q_width() + a.heads.q_width();
  std::copy_n(shared, a.heads.rotated, std::copy_n(a.latent.as<T>() + r * rank, rank, into));
}

template <class T>
void cached_latents(const CachedLatentsArgs& a, ThreadPool& pool) {
  const CallRows rows = rows_of(a);
  const std::int64_t rank = dispatch::row_length(a.latent), capacity = a.cache.shape.dim(1);
  dispatch::parallel_for_ranges(pool, rows.n, detail::rows_per_item(rank),
                                [&](std::int64_t first, std::int64_t n) {
                                  for (std::int64_t r = first; r < first + n; ++r) store<T>(a, rows, r);
                                });
  for_each_position(rows, a.cache, rank, pool, [&](std::int64_t slot, std::int64_t position, bool is_seen) {
    const std::int64_t at = slot * capacity + position;
    T* const into = a.latents.as<T>() + at * rank;
    if (is_seen)
      std::copy_n(a.cache.as<T>() + at * (rank + a.heads.rotated), rank, into);
    else
      std::fill_n(into, rank, from_f32<T>(0.0f));
  });
}

template <class T>
void latent_keys_values(const LatentKeysValuesArgs& a, ThreadPool& pool) {
  const LatentHeads& h = a.heads;
  const std::int64_t capacity = a.cache.shape.dim(1), d = h.head_dim(),
                     of_kv = std::int64_t{h.plain} + h.value, width = a.cache.shape.dim(2);
  for_each_position(rows_of(a), a.cache, 2 * h.q_width(), pool,
                    [&](std::int64_t slot, std::int64_t position, bool is_seen) {
                      if (!is_seen) return;
                      const std::int64_t at = slot * capacity + position;
                      const T *kv = a.kv.as<T>() + at * h.kv_width(),
                              *rotated = a.cache.as<T>() + at * width + width - h.rotated;
                      for (std::int64_t head = 0; head < h.heads; ++head, kv += of_kv) {
                        const std::int64_t into = ((slot * h.heads + head) * capacity + position) * d;
                        std::copy_n(kv, h.plain, std::copy_n(rotated, h.rotated, a.keys.as<T>() + into));
                        T* const value = a.values.as<T>() + into;
                        std::fill(std::copy_n(kv + h.plain, h.value, value), value + d, from_f32<T>(0.0f));
                      }
                    });
}

/// The operands of both ops.
template <class Args>
Status check_cache(dispatch::Check& check, const Args& a, std::int64_t rank) {
  const LatentHeads& h = a.heads;
  const bool has_rank = a.cache.shape.rank == 3;
  const std::int64_t sequences = has_rank ? a.cache.shape.dim(0) : 0,
                     capacity = has_rank ? a.cache.shape.dim(1) : 0;
  return check
      .require(h.heads >= 1 && h.plain >= 1 && h.rotated >= 1 && h.value >= 1 && h.value <= h.head_dim(),
               "latent attention has ", h.heads, " heads of ", h.plain, " and ", h.rotated,
               " elements and values of ", h.value,
               "; each must be at least 1, and values no longer than both together")
      .shape("cache", a.cache, a.cache.dtype, {sequences, capacity, rank + h.rotated})
      .elements("positions", a.positions, DType::i32, a.positions.n_elems())
      .elements("slots", a.slots, DType::i32, a.positions.n_elems())
      .status();
}

}  // namespace

STRATA_OP(cached_latents, CachedLatentsArgs);
STRATA_OP(latent_keys_values, LatentKeysValuesArgs);

void cached_latents_host(const CachedLatentsArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.latent.dtype, [&]<class T>(std::type_identity<T>) { cached_latents<T>(a, pool); });
}
void latent_keys_values_host(const LatentKeysValuesArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.kv.dtype, [&]<class T>(std::type_identity<T>) { latent_keys_values<T>(a, pool); });
}

Status cached_latents_async(Backend& backend, Stream& stream, const CachedLatentsArgs& a) {
  const std::int64_t rows = row_count(a.latent), rank = dispatch::row_length(a.latent);
  dispatch::Check check("cached_latents", "latent", a.latent);
  STRATA_TRY(check_cache(check, a, rank));
  STRATA_TRY(check.rows("latent", a.latent, rows, rank)
                 .rows("qkv", a.qkv, rows, 3 * a.heads.q_width())
                 .elements("positions", a.positions, DType::i32, rows)
                 .shape("cache", a.cache, a.latent.dtype, a.cache.shape)
                 .rows("latents", a.latents, a.cache.shape.dim(0) * a.cache.shape.dim(1), rank)
                 .status());
  return dispatch::enqueue(backend, stream, cached_latents_op, a, {a.latent, a.qkv, a.positions, a.slots},
                           {a.cache, a.latents});
}
Status latent_keys_values_async(Backend& backend, Stream& stream, const LatentKeysValuesArgs& a) {
  const std::int64_t width = a.cache.shape.rank == 3 ? a.cache.shape.dim(2) : 0;
  dispatch::Check check("latent_keys_values", "kv", a.kv);
  STRATA_TRY(check_cache(check, a, width - a.heads.rotated));
  const std::int64_t sequences = a.cache.shape.dim(0), capacity = a.cache.shape.dim(1);
  const Shape keys = {sequences, a.heads.heads, capacity, a.heads.head_dim()};
  STRATA_TRY(check.rows("kv", a.kv, sequences * capacity, a.heads.kv_width())
                 .shape("cache", a.cache, a.kv.dtype, a.cache.shape)
                 .shape("keys", a.keys, a.kv.dtype, keys)
                 .shape("values", a.values, a.kv.dtype, keys)
                 .status());
  return dispatch::enqueue(backend, stream, latent_keys_values_op, a, {a.kv, a.positions, a.slots, a.cache},
                           {a.keys, a.values});
}

}  // namespace strata::kernels
