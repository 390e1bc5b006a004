#include "answer/token_scores.h"

#include <algorithm>

#include <strata/infer/scorer.h>

namespace strata::detail {
namespace {

/// Ids of the largest logits, in descending order: an insertion into `n` places, most of which are few.
std::vector<std::int32_t> largest(std::span<const float> logits, std::size_t n) {
  std::vector<std::int32_t> ids;
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (ids.size() == n && !(logits[i] > logit(ids.back()))) continue;
    const auto at =
        std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return logits[i] > logit(id); });
    ids.insert(at, static_cast<std::int32_t>(i));
    if (ids.size() > n) ids.pop_back();
  }
  return ids;
}

}  // namespace

TokenScore score_token(std::span<const float> logits, std::int32_t id, std::size_t n_top) {
  bool greedy = true;
  TokenScore score{id, log_softmax_at(logits, id, greedy), {}, 0};
  if (n_top == 0) return score;
  const std::vector<std::int32_t> ids = largest(logits, n_top);
  const double most = logits[static_cast<std::size_t>(ids.front())];
  const double logprob_of_most = log_softmax_at(logits, ids.front(), greedy);
  for (const std::int32_t each : ids)
    score.top.emplace_back(
        each, static_cast<double>(logits[static_cast<std::size_t>(each)]) - most + logprob_of_most);
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) score.top.emplace_back(id, *score.logprob);
  return score;
}

std::size_t n_characters(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace strata::detail
