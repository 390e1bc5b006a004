#include <strata/kernels/cached_attention.h>

#include <algorithm>

#include <strata/ops/op.h>
#include <strata/ops/rows.h>

#include "cached_attention_table.h"
#include "cuda/attention/launches.h"

namespace strata::kernels {

std::size_t cached_attention_workspace_bytes(std::int64_t rows, std::int64_t capacity,
                                             const CachedAttentionShape& shape) noexcept {
  const std::int64_t floats = capacity * (shape.alibi ? 2 : 1);
  return static_cast<std::size_t>(detail::cached_attention_scratch_slots(rows, shape.kv_heads) * floats) *
         sizeof(float);
}

Status cached_attention_async(Backend& backend, Stream& stream, const CachedAttentionArgs& a) {
  const CachedAttentionShape& s = a.shape;
  const std::int64_t rows = ops::row_count(a.qkv);
  const std::int64_t width = ops::row_length(a.qkv);
  const bool heads_fit = s.heads >= 1 && s.kv_heads >= 1 && s.heads % s.kv_heads == 0;
  const std::int64_t parts = heads_fit ? s.heads + 2 * s.kv_heads : 1;
  const std::int64_t sequences = a.keys.shape.rank == 4 ? a.keys.shape.dim(0) : 0;
  const std::int64_t capacity = a.keys.shape.rank == 4 ? a.keys.shape.dim(2) : 0;
  const Shape cache = {sequences, s.kv_heads, capacity, width / parts};
  STRATA_TRY(ops::Check("cached_attention")
                 .rows("qkv", a.qkv, rows, width)
                 .require(heads_fit, s.heads, " query heads must be a positive multiple of ", s.kv_heads,
                          " key heads")
                 .require(width % parts == 0, "rows of ", width, " are not a multiple of ", s.heads,
                          " + 2 * ", s.kv_heads, " heads")
                 .require(s.window >= 0 && s.scale >= 0 && s.softcap >= 0 && (s.softcap == 0 || !s.alibi),
                          "window is ", s.window, ", scale is ", s.scale, ", softcap is ", s.softcap,
                          "; each must be 0 or more, and softcap above 0 only without ALiBi")
                 .elements("positions", a.positions, DType::i32, rows)
                 .elements("slots", a.slots, DType::i32, rows)
                 .shape("keys", a.keys, DType::f32, cache)
                 .shape("values", a.values, DType::f32, cache)
                 .rows("out", a.out, rows, width / parts * s.heads)
                 .workspace(a.workspace, cached_attention_workspace_bytes(rows, capacity, s))
                 .status());
  constexpr ops::OpImpl<CachedAttentionArgs> op = {"cached_attention", &cached_attention_host,
                                                   &cuda::cached_attention};
  return ops::enqueue(backend, stream, op, a, {a.qkv, a.positions, a.slots}, {a.out, a.keys, a.values},
                      a.workspace);
}

}  // namespace strata::kernels
