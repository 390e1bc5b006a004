#pragma once

#include <cstring>

#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/lora_parts.h>
#include <strata/runtime/status.h>
#include <strata/runtime/tensor_view.h>

#include "gemm/gemm.h"

/// The GEMM of each part of an adapted matrix, used by the host and by CUDA.
namespace strata::kernels::detail {

/// Where a part begins: an element of b, a column of u and a column of y.
struct LoraOffsets {
  std::int64_t b = 0, u = 0, y = 0;
};

inline void* at(const TensorView& view, std::int64_t element) noexcept {
  return view.data + element * static_cast<std::int64_t>(size_of(view.dtype));
}

/// Copies the base's result to y, if it is not there already.
inline void copy_base(const TensorView& base, const TensorView& y, ThreadPool& pool) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 10;  // a thread copies so many at a time
  if (y.data == base.data) return;
  dispatch::parallel_for_ranges(pool, static_cast<std::int64_t>(y.bytes()), kBytes,
                                [&](std::int64_t begin, std::int64_t n) {
                                  std::memcpy(y.data + begin, base.data + begin, static_cast<std::size_t>(n));
                                });
}

/// Calls `run(part, offsets)` for each part, in order, until one returns an error.
template <class Run>
Status for_each_part(const LoraParts& parts, const Run& run) {
  LoraOffsets offsets;
  for (const LoraPart& part : parts.all()) {
    offsets.y = part.first_row;
    STRATA_TRY(run(part, offsets));
    offsets.b += part.rows * part.rank;
    offsets.u += part.rank;
  }
  return {};
}

/// y[:, rows of the part] += u[:, its columns] b^T.
inline Gemm lora_up_gemm(const TensorView& u, const TensorView& b, const TensorView& y, const LoraPart& part,
                         const LoraOffsets& offsets) {
  return {.trans_b = true,
          .m = dispatch::row_count(y),
          .n = part.rows,
          .k = part.rank,
          .a = at(u, offsets.u),
          .lda = dispatch::row_length(u),
          .b = at(b, offsets.b),
          .ldb = part.rank,
          .c = at(y, offsets.y),
          .ldc = dispatch::row_length(y),
          .accumulate = true,
          .dtype = y.dtype,
          .c_dtype = y.dtype};
}
/// du[:, columns of the part] = dy[:, its rows] b.
inline Gemm lora_input_gemm(const TensorView& dy, const TensorView& b, const TensorView& du,
                            const LoraPart& part, const LoraOffsets& offsets) {
  return {.m = dispatch::row_count(dy),
          .n = part.rank,
          .k = part.rows,
          .a = at(dy, offsets.y),
          .lda = dispatch::row_length(dy),
          .b = at(b, offsets.b),
          .ldb = part.rank,
          .c = at(du, offsets.u),
          .ldc = dispatch::row_length(du),
          .dtype = dy.dtype,
          .c_dtype = du.dtype};
}
/// db (+)= dy[:, rows of the part]^T u[:, its columns].
inline Gemm lora_weight_gemm(const TensorView& dy, const TensorView& u, const TensorView& db,
                             const LoraPart& part, const LoraOffsets& offsets, bool accumulate) {
  return {.trans_a = true,
          .m = part.rows,
          .n = part.rank,
          .k = dispatch::row_count(dy),
          .a = at(dy, offsets.y),
          .lda = dispatch::row_length(dy),
          .b = at(u, offsets.u),
          .ldb = dispatch::row_length(u),
          .c = at(db, offsets.b),
          .ldc = part.rank,
          .accumulate = accumulate,
          .dtype = dy.dtype,
          .c_dtype = db.dtype};
}

}  // namespace strata::kernels::detail
