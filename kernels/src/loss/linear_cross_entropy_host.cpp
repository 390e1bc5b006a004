#include <strata/cpuopt/convert.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "loss/cross_entropy_rows.h"
#include "gemm/gemm.h"
#include "loss/linear_cross_entropy_blocks.h"

namespace strata::kernels {
namespace {

using detail::Gemm;

/// Rows [first, first + n) of x, and the workspace for their logits.
template <class T>
struct LogitsBlock {
  LogitsBlock(const LinearCrossEntropyArgs& a, std::int64_t first_row, std::int64_t rows)
      : first(first_row),
        n(rows),
        k(detail::row_length(a.x)),
        vocab(a.w.shape.dim(0)),
        x(a.x.as<T>() + first * k),
        logits(reinterpret_cast<float*>(a.workspace.data)) {}
  const std::int64_t first, n, k, vocab;
  const T* const x;
  float* const logits;
};

template <class T>
void make_logits(const LinearCrossEntropyArgs& a, const LogitsBlock<T>& block, ThreadPool& pool) {
  const Gemm logits = {.trans_b = true,
                       .m = block.n,
                       .n = block.vocab,
                       .k = block.k,
                       .a = block.x,
                       .lda = block.k,
                       .b = a.w.data,
                       .ldb = block.k,
                       .c = block.logits,
                       .ldc = block.vocab,
                       .dtype = dtype_of<T>};
  detail::gemm_tiled(logits, nullptr, pool);
}

/// Applies the soft cap to the logits of row `t` of a block and returns the row's loss.
template <class T>
float loss_of(const LinearCrossEntropyArgs& a, const LogitsBlock<T>& block, std::int64_t t, float& lse) {
  float* row = block.logits + t * block.vocab;
  if (a.softcap > 0) detail::row_table().softcap(row, 1.0f, a.softcap, block.vocab);
  return detail::row_loss(row, block.vocab, a.targets.as<std::int32_t>()[block.first + t], lse);
}

/// Computes the losses of a block and replaces its logits by their gradient; returns the gradient as T.
template <class T>
const T* logits_gradient(const LinearCrossEntropyBackwardArgs& a, const LogitsBlock<T>& block, float scale,
                         ThreadPool& pool) {
  auto* dlogits =
      reinterpret_cast<T*>(a.forward.workspace.data +
                           (dtype_of<T> == DType::f32 ? 0 : detail::logits_bytes(block.n, block.vocab)));
  const auto* targets = a.forward.targets.as<std::int32_t>() + block.first;
  auto* losses = a.forward.losses.as<float>() + block.first;
  detail::parallel_for_ranges(
      pool, block.n, detail::rows_per_item(block.vocab), [&](std::int64_t begin, std::int64_t n) {
        for (std::int64_t t = begin; t < begin + n; ++t) {
          float* row = block.logits + t * block.vocab;
          float lse = 0;
          losses[t] = loss_of(a.forward, block, t, lse);
          if (const float cap = a.forward.softcap; cap > 0)
            detail::capped_row_gradient(row, block.vocab, targets[t], lse, scale, cap);
          else
            detail::row_gradient(row, block.vocab, targets[t], lse, scale, row);
          if constexpr (dtype_of<T> != DType::f32)
            cpuopt::narrow(row, dlogits + t * block.vocab, block.vocab);
        }
      });
  return dlogits;
}

template <class T>
void gradient_gemms(const LinearCrossEntropyBackwardArgs& a, const LogitsBlock<T>& block, const T* dlogits,
                    ThreadPool& pool) {
  const Gemm dx = {.m = block.n,
                   .n = block.k,
                   .k = block.vocab,
                   .a = dlogits,
                   .lda = block.vocab,
                   .b = a.forward.w.data,
                   .ldb = block.k,
                   .c = a.dx.data == nullptr ? nullptr : a.dx.as<T>() + block.first * block.k,
                   .ldc = block.k,
                   .dtype = dtype_of<T>,
                   .c_dtype = dtype_of<T>};
  if (detail::is_present(a.dx)) detail::gemm_tiled(dx, nullptr, pool);
  const Gemm dw = {.trans_a = true,
                   .m = block.vocab,
                   .n = block.k,
                   .k = block.n,
                   .a = dlogits,
                   .lda = block.vocab,
                   .b = block.x,
                   .ldb = block.k,
                   .c = a.dw.data,
                   .ldc = block.k,
                   .accumulate = a.accumulate_dw || block.first > 0,
                   .dtype = dtype_of<T>};
  if (detail::is_present(a.dw)) detail::gemm_tiled(dw, nullptr, pool);
}

/// Calls body(block) for every block of rows, in order.
template <class T, class Body>
void for_blocks(const LinearCrossEntropyArgs& a, const Body& body) {
  const std::int64_t rows = detail::row_count(a.x);
  const std::int64_t step = linear_cross_entropy_block_rows(rows, a.w.shape.dim(0));
  for (std::int64_t first = 0; first < rows; first += step)
    body(LogitsBlock<T>(a, first, std::min(step, rows - first)));
}

template <class T>
void forward(const LinearCrossEntropyArgs& a, ThreadPool& pool) {
  for_blocks<T>(a, [&](const LogitsBlock<T>& block) {
    make_logits(a, block, pool);
    auto* losses = a.losses.as<float>() + block.first;
    detail::parallel_for_ranges(pool, block.n, detail::rows_per_item(block.vocab),
                                [&](std::int64_t begin, std::int64_t n) {
                                  float lse = 0;
                                  for (std::int64_t t = begin; t < begin + n; ++t)
                                    losses[t] = loss_of(a, block, t, lse);
                                });
  });
}

template <class T>
void backward(const LinearCrossEntropyBackwardArgs& a, double divisor, ThreadPool& pool) {
  const auto scale = static_cast<float>(static_cast<double>(a.scale) / (divisor > 0 ? divisor : 1.0));
  for_blocks<T>(a.forward, [&](const LogitsBlock<T>& block) {
    make_logits(a.forward, block, pool);
    gradient_gemms(a, block, logits_gradient(a, block, scale, pool), pool);
  });
}

double divisor_of(const LinearCrossEntropyArgs& a) {
  return detail::loss_divisor(a.divisor, a.targets.as<std::int32_t>(), detail::row_count(a.x));
}
void store_mean_loss(const LinearCrossEntropyArgs& a, double divisor) {
  *a.mean_loss.as<float>() = detail::mean_loss(a.losses.as<float>(), detail::row_count(a.x), divisor);
}

}  // namespace

void linear_cross_entropy_host(const LinearCrossEntropyArgs& a, ThreadPool& pool) {
  detail::dispatch_dtype(a.x.dtype, [&]<class T>(std::type_identity<T>) { forward<T>(a, pool); });
  store_mean_loss(a, divisor_of(a));
}

void linear_cross_entropy_backward_host(const LinearCrossEntropyBackwardArgs& a, ThreadPool& pool) {
  const double divisor = divisor_of(a.forward);
  detail::dispatch_dtype(a.forward.x.dtype,
                         [&]<class T>(std::type_identity<T>) { backward<T>(a, divisor, pool); });
  store_mean_loss(a.forward, divisor);
}

}  // namespace strata::kernels
