#include <limits>

#include <strata/dispatch/rows.h>
#include <strata/kernels/linear_cross_entropy.h>

#include "loss/cross_entropy_rows.h"
#include "loss/head_host.h"
#include "loss/merge_row_loss.h"

namespace strata::kernels {
namespace {

using detail::head_of;
using detail::LogitsBlock;

float* logits_of(const LogitsBlock& block, std::int64_t t) { return block.logits + t * block.vocab; }

/// Applies the soft cap to the logits of row `t` of a block and returns the row's loss.
float loss_of(const LinearCrossEntropyArgs& a, const LogitsBlock& block, std::int64_t t, float& lse) {
  float* row = logits_of(block, t);
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
  float* row = logits_of(block, t);
  const std::int32_t target = own_target(a, block.first + t);
  const float lse = a.lse.as<float>()[block.first + t];
  if (a.softcap > 0) detail::row_table().softcap(row, 1.0f, a.softcap, block.vocab);
  if (target == kElsewhere && a.softcap > 0)
    detail::row_table().capped_softmax_from_lse(row, lse, scale, a.softcap, block.vocab);
  else if (target == kElsewhere)
    detail::simd_table<float>().softmax_from_lse(row, row, lse, scale, block.vocab);
  else
    detail::logits_gradient(row, block.vocab, target, lse, scale, a.softcap);
}

double divisor_of(const LinearCrossEntropyArgs& a) {
  return detail::loss_divisor(a.divisor, a.targets.as<std::int32_t>(), dispatch::row_count(a.x));
}
void store_mean_loss(const LinearCrossEntropyArgs& a, double divisor) {
  *a.mean_loss.as<float>() = detail::mean_loss(a.losses.as<float>(), dispatch::row_count(a.x), divisor);
}

}  // namespace

void linear_cross_entropy_host(const LinearCrossEntropyArgs& a, ThreadPool& pool) {
  detail::for_head_rows(head_of(a), pool, [&](const LogitsBlock& block, std::int64_t t) {
    float lse = 0;
    a.losses.as<float>()[block.first + t] = loss_of(a, block, t, lse);
  });
  store_mean_loss(a, divisor_of(a));
}

void linear_cross_entropy_backward_host(const LinearCrossEntropyBackwardArgs& args, ThreadPool& pool) {
  const LinearCrossEntropyArgs& a = args.forward;
  const double divisor = divisor_of(a);
  const auto scale = static_cast<float>(static_cast<double>(args.scale) / (divisor > 0 ? divisor : 1.0));
  const bool is_part = dispatch::is_present(a.lse);
  const auto replace_row = [&](const LogitsBlock& block, std::int64_t t) {
    if (is_part) return part_row_gradient(a, block, t, scale);
    float lse = 0;
    a.losses.as<float>()[block.first + t] = loss_of(a, block, t, lse);
    detail::logits_gradient(logits_of(block, t), block.vocab, a.targets.as<std::int32_t>()[block.first + t],
                            lse, scale, a.softcap);
  };
  detail::for_head_rows_backward(head_of(a), args.dx, args.dw, args.accumulate_dw, pool, replace_row);
  if (!is_part) store_mean_loss(a, divisor);
}

void linear_log_sum_exp_host(const LinearCrossEntropyArgs& a, ThreadPool& pool) {
  detail::for_head_rows(head_of(a), pool, [&](const LogitsBlock& block, std::int64_t t) {
    float* row = logits_of(block, t);
    if (a.softcap > 0) detail::row_table().softcap(row, 1.0f, a.softcap, block.vocab);
    const std::int32_t target = own_target(a, block.first + t);
    a.lse.as<float>()[block.first + t] = detail::simd_table<float>().log_sum_exp(row, block.vocab);
    a.losses.as<float>()[block.first + t] = target >= 0 && target != kElsewhere ? row[target] : 0.0f;
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
