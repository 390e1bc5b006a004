#include <strata/kernels/mixers/latent_heads.h>

#include <algorithm>

#include <strata/dispatch/op.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>

#include "dtype_dispatch.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

using dispatch::row_count;

Status check_latent(dispatch::Check& check, const LatentHeads& h) {
  return check
      .require(h.heads >= 1 && h.plain >= 1 && h.rotated >= 1 && h.value >= 1 && h.value <= h.head_dim(),
               "latent attention has ", h.heads, " heads of ", h.plain, " and ", h.rotated,
               " elements and values of ", h.value,
               "; each must be at least 1, and values no longer than both together")
      .status();
}

/// Calls body(row) for the rows, `width` elements of which are read and written.
template <class Body>
void for_each_row(std::int64_t rows, std::int64_t width, ThreadPool& pool, const Body& body) {
  dispatch::parallel_for_ranges(pool, rows, detail::rows_per_item(width),
                                [&](std::int64_t row, std::int64_t n) {
                                  for (const std::int64_t end = row + n; row < end; ++row) body(row);
                                });
}

template <class T>
void latent_qkv_forward(const LatentQkvForwardArgs& a, ThreadPool& pool) {
  const LatentHeads& h = a.heads;
  const std::int64_t d = h.head_dim(), width = h.q_width(), of_kv = std::int64_t{h.plain} + h.value;
  const bool has_kv = dispatch::is_present(a.kv);
  const T zero = from_f32<T>(0.0f);
  for_each_row(row_count(a.q), 3 * width, pool, [&](std::int64_t row) {
    const T *q = a.q.as<T>() + row * width, *kv = has_kv ? a.kv.as<T>() + row * h.kv_width() : nullptr,
            *rotated = a.rotated_key.as<T>() + row * h.rotated;
    T *to_q = a.qkv.as<T>() + row * 3 * width, *to_k = to_q + width, *to_v = to_k + width;
    for (std::int32_t head = 0; head < h.heads; ++head, q += d, to_q += d, to_k += d, to_v += d) {
      std::copy_n(q, h.plain, std::copy_n(q + h.plain, h.rotated, to_q));
      T* const plain = std::copy_n(rotated, h.rotated, to_k);
      if (has_kv) {
        std::copy_n(kv, h.plain, plain);
        std::fill(std::copy_n(kv + h.plain, h.value, to_v), to_v + d, zero);
        kv += of_kv;
      } else {
        std::fill_n(plain, h.plain, zero);
        std::fill_n(to_v, d, zero);
      }
    }
  });
}

template <class T>
void latent_qkv_backward(const LatentQkvBackwardArgs& a, ThreadPool& pool) {
  const LatentHeads& h = a.heads;
  const std::int64_t d = h.head_dim(), width = h.q_width(), of_kv = std::int64_t{h.plain} + h.value;
  for_each_row(row_count(a.dqkv), 3 * width, pool, [&](std::int64_t row) {
    const T *dq = a.dqkv.as<T>() + row * 3 * width, *dk = dq + width, *dv = dk + width;
    T *to_q = a.dq.as<T>() + row * width, *to_kv = a.dkv.as<T>() + row * h.kv_width();
    for (std::int32_t i = 0; i < h.rotated; ++i) {
      float sum = 0.0f;
      for (std::int32_t head = 0; head < h.heads; ++head) sum = sum + to_f32(dk[head * d + i]);
      a.drotated_key.as<T>()[row * h.rotated + i] = from_f32<T>(sum);
    }
    for (std::int32_t head = 0; head < h.heads;
         ++head, dq += d, dk += d, dv += d, to_q += d, to_kv += of_kv) {
      std::copy_n(dq, h.rotated, std::copy_n(dq + h.rotated, h.plain, to_q));
      std::copy_n(dv, h.value, std::copy_n(dk + h.rotated, h.plain, to_kv));
    }
  });
}

template <class T>
void trim_heads_forward(const TrimHeadsForwardArgs& a, ThreadPool& pool) {
  const LatentHeads& h = a.heads;
  for_each_row(row_count(a.x), h.q_width(), pool, [&](std::int64_t row) {
    const T* x = a.x.as<T>() + row * h.q_width();
    T* y = a.y.as<T>() + row * h.out_width();
    for (std::int32_t head = 0; head < h.heads; ++head, x += h.head_dim()) y = std::copy_n(x, h.value, y);
  });
}

template <class T>
void trim_heads_backward(const TrimHeadsBackwardArgs& a, ThreadPool& pool) {
  const LatentHeads& h = a.heads;
  for_each_row(row_count(a.dy), h.q_width(), pool, [&](std::int64_t row) {
    const T* dy = a.dy.as<T>() + row * h.out_width();
    T* dx = a.dx.as<T>() + row * h.q_width();
    for (std::int32_t head = 0; head < h.heads; ++head, dy += h.value, dx += h.head_dim())
      std::fill(std::copy_n(dy, h.value, dx), dx + h.head_dim(), from_f32<T>(0.0f));
  });
}

}  // namespace

STRATA_OP(latent_qkv_forward, LatentQkvForwardArgs);
STRATA_OP(latent_qkv_backward, LatentQkvBackwardArgs);
STRATA_OP(trim_heads_forward, TrimHeadsForwardArgs);
STRATA_OP(trim_heads_backward, TrimHeadsBackwardArgs);

void latent_qkv_forward_host(const LatentQkvForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.q.dtype, [&]<class T>(std::type_identity<T>) { latent_qkv_forward<T>(a, pool); });
}
void latent_qkv_backward_host(const LatentQkvBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dq.dtype,
                         [&]<class T>(std::type_identity<T>) { latent_qkv_backward<T>(a, pool); });
}
void trim_heads_forward_host(const TrimHeadsForwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { trim_heads_forward<T>(a, pool); });
}
void trim_heads_backward_host(const TrimHeadsBackwardArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.dy.dtype,
                         [&]<class T>(std::type_identity<T>) { trim_heads_backward<T>(a, pool); });
}

Status latent_qkv_forward_async(Backend& backend, Stream& stream, const LatentQkvForwardArgs& a) {
  const std::int64_t rows = row_count(a.q);
  dispatch::Check check("latent_qkv_forward", "q", a.q);
  if (dispatch::is_present(a.kv)) check.rows("kv", a.kv, rows, a.heads.kv_width());
  check.rows("q", a.q, rows, a.heads.q_width())
      .rows("rotated_key", a.rotated_key, rows, a.heads.rotated)
      .rows("qkv", a.qkv, rows, 3 * a.heads.q_width());
  STRATA_TRY(check_latent(check, a.heads));
  return dispatch::enqueue(backend, stream, latent_qkv_forward_op, a, {a.q, a.kv, a.rotated_key}, {a.qkv});
}
Status latent_qkv_backward_async(Backend& backend, Stream& stream, const LatentQkvBackwardArgs& a) {
  const std::int64_t rows = row_count(a.dqkv);
  dispatch::Check check("latent_qkv_backward", "dqkv", a.dqkv);
  check.rows("dqkv", a.dqkv, rows, 3 * a.heads.q_width())
      .rows("dq", a.dq, rows, a.heads.q_width())
      .rows("dkv", a.dkv, rows, a.heads.kv_width())
      .rows("drotated_key", a.drotated_key, rows, a.heads.rotated);
  STRATA_TRY(check_latent(check, a.heads));
  return dispatch::enqueue(backend, stream, latent_qkv_backward_op, a, {a.dqkv},
                           {a.dq, a.dkv, a.drotated_key});
}
Status trim_heads_forward_async(Backend& backend, Stream& stream, const TrimHeadsForwardArgs& a) {
  dispatch::Check check("trim_heads_forward", "x", a.x);
  check.rows("x", a.x, row_count(a.x), a.heads.q_width()).rows("y", a.y, row_count(a.x), a.heads.out_width());
  STRATA_TRY(check_latent(check, a.heads));
  return dispatch::enqueue(backend, stream, trim_heads_forward_op, a, {a.x}, {a.y});
}
Status trim_heads_backward_async(Backend& backend, Stream& stream, const TrimHeadsBackwardArgs& a) {
  dispatch::Check check("trim_heads_backward", "dy", a.dy);
  check.rows("dy", a.dy, row_count(a.dy), a.heads.out_width())
      .rows("dx", a.dx, row_count(a.dy), a.heads.q_width());
  STRATA_TRY(check_latent(check, a.heads));
  return dispatch::enqueue(backend, stream, trim_heads_backward_op, a, {a.dy}, {a.dx});
}

}  // namespace strata::kernels
