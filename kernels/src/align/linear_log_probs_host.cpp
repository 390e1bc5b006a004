#include <algorithm>

#include <strata/kernels/align/linear_log_probs.h>

#include "align/logit_scale.h"
#include "loss/cross_entropy_rows.h"
#include "loss/head_host.h"

namespace strata::kernels {
namespace {

using detail::LogitsBlock;

void scale_logits(const detail::LogitScale& scale, float* row, std::int64_t vocab) {
  if (scale.cap > 0) detail::row_table().softcap(row, 1.0f, scale.cap, vocab);
  if (scale.factor != 1.0f) detail::simd_table<float>().scale(row, row, scale.factor, vocab);
}

}  // namespace

TokenLogProb token_log_prob(std::span<float> logits, std::int32_t target, float temperature) noexcept {
  const std::int64_t vocab = std::ssize(logits);
  scale_logits(detail::LogitScale({.temperature = temperature}), logits.data(), vocab);
  TokenLogProb token;
  float lse = 0;
  token.log_prob = 0.0f - detail::row_loss(logits.data(), vocab, target, lse);
  token.entropy = detail::row_table().entropy(logits.data(), lse, vocab);
  return token;
}

void linear_log_probs_host(const LinearLogProbsArgs& a, ThreadPool& pool) {
  const detail::LogitScale scale(a.scaling);
  const auto* targets = a.targets.as<std::int32_t>();
  auto* log_probs = a.log_probs.as<float>();
  auto* lse = a.lse.as<float>();
  auto* entropies = dispatch::is_present(a.entropies) ? a.entropies.as<float>() : nullptr;
  detail::for_head_rows(detail::head_of(a), pool, [&](const LogitsBlock& block, std::int64_t in_block) {
    const std::int64_t t = block.first + in_block;
    float* const row = block.logits + in_block * block.vocab;
    if (targets[t] >= 0) {
      scale_logits(scale, row, block.vocab);
      log_probs[t] = 0.0f - detail::row_loss(row, block.vocab, targets[t], lse[t]);
      if (entropies != nullptr) entropies[t] = detail::row_table().entropy(row, lse[t], block.vocab);
    } else {
      log_probs[t] = lse[t] = 0.0f;
      if (entropies != nullptr) entropies[t] = 0.0f;
    }
  });
}

void linear_log_probs_backward_host(const LinearLogProbsBackwardArgs& a, ThreadPool& pool) {
  const detail::LogitScale scale(a.scaling);
  const auto* targets = a.targets.as<std::int32_t>();
  const auto replace_row = [&](const LogitsBlock& block, std::int64_t in_block) {
    const std::int64_t t = block.first + in_block;
    float* const row = block.logits + in_block * block.vocab;
    if (targets[t] < 0) {
      std::fill_n(row, block.vocab, 0.0f);
      return;
    }
    scale_logits(scale, row, block.vocab);
    detail::logits_gradient(row, block.vocab, targets[t], a.lse.as<float>()[t],
                            0.0f - a.dlog_probs.as<float>()[t] * scale.factor, scale.scaled_cap());
  };
  detail::for_head_rows_backward(detail::head_of(a), a.dx, a.dw, a.accumulate_dw, pool, replace_row);
}

}  // namespace strata::kernels
