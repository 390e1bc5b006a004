#include <algorithm>
#include <cstddef>
#include <limits>

#include <strata/cpuopt/convert.h>
#include <strata/dispatch/ranges.h>
#include <strata/dispatch/rows.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "dtype_dispatch.h"
#include "gemm/gemm_tiled.h"
#include "loss/cross_entropy_rows.h"
#include "loss/linear_cross_entropy_blocks.h"
#include "loss/linear_cross_entropy_gemms.h"
#include "loss/merge_row_loss.h"
#include "work_split.h"

namespace strata::kernels {
namespace {

/// Rows [first, first + n) of x, and the workspace for their logits.
struct LogitsBlock {
  LogitsBlock(const LinearCrossEntropyArgs& a, std::int64_t first_row, std::int64_t rows)
      : first(first_row),
        n(rows),
        vocab(a.w.shape.dim(0)),
        logits(reinterpret_cast<float*>(a.workspace.data)) {}
  const std::int64_t first, n, vocab;
  float* const logits;
};

void make_logits(const LinearCrossEntropyArgs& a, const LogitsBlock& block, ThreadPool& pool) {
  detail::gemm_tiled(detail::logits_gemm(a, block.first, block.n, block.logits), nullptr, pool);
}

/// Applies the soft cap to the logits of row `t` of a block and returns the row's loss.
float loss_of(const LinearCrossEntropyArgs& a, const LogitsBlock& block, std::int64_t t, float& lse) {
  float* row = block.logits + t * block.vocab;
  if (a.softcap > 0) detail::row_table().softcap(row, 1.0f, a.softcap, block.vocab);
  return detail::row_loss(row, block.vocab, a.targets.as<std::int32_t>()[block.first + t], lse);
}

/// The number of a row's target among the rows of w: below 0 if it is ignored, kElsewhere if it is none of
/// them.
constexpr std::int32_t kElsewhere = std::numeric_limits<std::int32_t>::max();
std::int32_t own_target(const LinearCrossEntropyArgs& a, std::int64_t t) {
  const std::int64_t target = a.targets.as<std::int32_t>()[t];
  if (target < 0) return -1;
  const std::int64_t own = target - a.first_row;
  return own >= 0 && own < a.w.shape.dim(0) ? static_cast<std::int32_t>(own) : kElsewhere;
}

/// The gradient in place of the logits of row `t` of a block, where the log-sum-exp is given.
void part_row_gradient(const LinearCrossEntropyArgs& a, const LogitsBlock& block, std::int64_t t,
                       float scale) {
  float* row = block.logits + t * block.vocab;
  const std::int32_t target = own_target(a, block.first + t);
  const float lse = a.lse.as<float>()[block.first + t];
  if (a.softcap > 0) detail::row_table().softcap(row, 1.0f, a.softcap, block.vocab);
  if (target == kElsewhere && a.softcap > 0)
    detail::row_table().capped_softmax_from_lse(row, lse, scale, a.softcap, block.vocab);
  else if (target == kElsewhere)
    detail::simd_table<float>().softmax_from_lse(row, row, lse, scale, block.vocab);
  else if (a.softcap > 0)
    detail::capped_row_gradient(row, block.vocab, target, lse, scale, a.softcap);
  else
    detail::row_gradient(row, block.vocab, target, lse, scale, row);
}

/// Computes the losses of a block and replaces its logits by their gradient; returns the gradient, stored as
/// T.
template <class T>
std::byte* logits_gradient(const LinearCrossEntropyBackwardArgs& a, const LogitsBlock& block, float scale,
                           ThreadPool& pool) {
  std::byte* const dlogits =
      a.forward.workspace.data + (dtype_of<T> == DType::f32 ? 0 : detail::logits_bytes(block.n, block.vocab));
  const auto* targets = a.forward.targets.as<std::int32_t>() + block.first;
  auto* losses = a.forward.losses.as<float>() + block.first;
  dispatch::parallel_for_ranges(
      pool, block.n, detail::rows_per_item(block.vocab), [&](std::int64_t begin, std::int64_t n) {
        for (std::int64_t t = begin; t < begin + n; ++t) {
          float* row = block.logits + t * block.vocab;
          if (dispatch::is_present(a.forward.lse)) {
            part_row_gradient(a.forward, block, t, scale);
          } else {
            float lse = 0;
            losses[t] = loss_of(a.forward, block, t, lse);
            if (const float cap = a.forward.softcap; cap > 0)
              detail::capped_row_gradient(row, block.vocab, targets[t], lse, scale, cap);
            else
              detail::row_gradient(row, block.vocab, targets[t], lse, scale, row);
          }
          if constexpr (dtype_of<T> != DType::f32)
            cpuopt::narrow(row, reinterpret_cast<T*>(dlogits) + t * block.vocab, block.vocab);
        }
      });
  return dlogits;
}

void gradient_gemms(const LinearCrossEntropyBackwardArgs& a, const LogitsBlock& block, std::byte* dlogits,
                    ThreadPool& pool) {
  if (dispatch::is_present(a.dx))
    detail::gemm_tiled(detail::head_input_gemm(a, block.first, block.n, dlogits), nullptr, pool);
  if (dispatch::is_present(a.dw))
    detail::gemm_tiled(detail::head_weight_gemm(a, block.first, block.n, dlogits), nullptr, pool);
}

/// Calls body(block) for every block of rows, in order.
template <class Body>
void for_blocks(const LinearCrossEntropyArgs& a, const Body& body) {
  const std::int64_t rows = dispatch::row_count(a.x);
  const std::int64_t step = linear_cross_entropy_block_rows(rows, a.w.shape.dim(0));
  for (std::int64_t first = 0; first < rows; first += step)
    body(LogitsBlock(a, first, std::min(step, rows - first)));
}

void forward(const LinearCrossEntropyArgs& a, ThreadPool& pool) {
  for_blocks(a, [&](const LogitsBlock& block) {
    make_logits(a, block, pool);
    auto* losses = a.losses.as<float>() + block.first;
    dispatch::parallel_for_ranges(pool, block.n, detail::rows_per_item(block.vocab),
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
  for_blocks(a.forward, [&](const LogitsBlock& block) {
    make_logits(a.forward, block, pool);
    gradient_gemms(a, block, logits_gradient<T>(a, block, scale, pool), pool);
  });
}

double divisor_of(const LinearCrossEntropyArgs& a) {
  return detail::loss_divisor(a.divisor, a.targets.as<std::int32_t>(), dispatch::row_count(a.x));
}
void store_mean_loss(const LinearCrossEntropyArgs& a, double divisor) {
  *a.mean_loss.as<float>() = detail::mean_loss(a.losses.as<float>(), dispatch::row_count(a.x), divisor);
}

}  // namespace

void linear_cross_entropy_host(const LinearCrossEntropyArgs& a, ThreadPool& pool) {
  forward(a, pool);
  store_mean_loss(a, divisor_of(a));
}

void linear_cross_entropy_backward_host(const LinearCrossEntropyBackwardArgs& a, ThreadPool& pool) {
  const double divisor = divisor_of(a.forward);
  detail::dispatch_dtype(a.forward.x.dtype,
                         [&]<class T>(std::type_identity<T>) { backward<T>(a, divisor, pool); });
  if (!dispatch::is_present(a.forward.lse)) store_mean_loss(a.forward, divisor);
}

void linear_log_sum_exp_host(const LinearCrossEntropyArgs& a, ThreadPool& pool) {
  for_blocks(a, [&](const LogitsBlock& block) {
    make_logits(a, block, pool);
    dispatch::parallel_for_ranges(
        pool, block.n, detail::rows_per_item(block.vocab), [&](std::int64_t begin, std::int64_t n) {
          for (std::int64_t t = begin; t < begin + n; ++t) {
            float* row = block.logits + t * block.vocab;
            if (a.softcap > 0) detail::row_table().softcap(row, 1.0f, a.softcap, block.vocab);
            const std::int32_t target = own_target(a, block.first + t);
            a.lse.as<float>()[block.first + t] = detail::simd_table<float>().log_sum_exp(row, block.vocab);
            a.losses.as<float>()[block.first + t] = target >= 0 && target != kElsewhere ? row[target] : 0.0f;
          }
        });
  });
}

void merge_losses_host(const MergeLossesArgs& a, ThreadPool&) {
  const std::int64_t rows = a.targets.n_elems(), parts = a.stats.shape.dim(0) / 2;
  const auto* stats = a.stats.as<float>();
  const auto* targets = a.targets.as<std::int32_t>();
  for (std::int64_t t = 0; t < rows; ++t)
    detail::merge_row_loss(stats + t, parts, rows, targets[t], a.lse.as<float>()[t], a.losses.as<float>()[t]);
  *a.mean_loss.as<float>() =
      detail::mean_loss(a.losses.as<float>(), rows, detail::loss_divisor(a.divisor, targets, rows));
}

}  // namespace strata::kernels
