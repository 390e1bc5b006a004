#include <strata/infer/scorer.h>

#include <algorithm>
#include <cmath>

#include <strata/kernels/cross_entropy.h>
#include <strata/model/decoder.h>
#include <strata/runtime/str.h>

namespace strata {

double log_softmax_at(std::span<const float> logits, std::int32_t token, bool& greedy) {
  const auto at = static_cast<std::size_t>(token);
  const auto most = std::max_element(logits.begin(), logits.end());
  if (static_cast<std::size_t>(most - logits.begin()) != at) greedy = false;
  return static_cast<double>(kernels::log_probability(logits, token));
}

Result<std::vector<SequenceScore>> Scorer::run(std::span<const ScoreSequence> sequences) {
  std::vector<SequenceScore> scores(sequences.size());
  tokens_.clear();
  wanted_.clear();
  targets_.clear();
  std::size_t first = 0;  // the first sequence of the pass: it and the ones after it have a slot each
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const ScoreSequence& sequence = sequences[s];
    const std::size_t n = sequence.ids.size();
    // The program puts virtual tokens in the place of the first ones.
    const auto n_virtual = static_cast<std::size_t>(virtual_tokens_);
    for (std::size_t at = 0; at + 1 < n_virtual + n; ++at) {
      const std::size_t i = at - std::min(at, n_virtual);
      const bool is_virtual = at < n_virtual, scored = !is_virtual && i + 1 + sequence.scored >= n;
      if (tokens_.size() == kRows || (scored && wanted_.size() == kLogitRows) ||
          (!tokens_.empty() && s - first == static_cast<std::size_t>(slots_)))
        STRATA_TRY(flush(scores));
      if (tokens_.empty()) first = s;
      if (scored) {
        wanted_.push_back(static_cast<std::int32_t>(tokens_.size()));
        targets_.push_back({s, sequence.ids[i + 1]});
      }
      tokens_.push_back({is_virtual ? 0 : sequence.ids[i], static_cast<std::int32_t>(at),
                         static_cast<std::int32_t>(s % static_cast<std::size_t>(slots_)), sequence.adapter});
    }
  }
  if (!tokens_.empty()) STRATA_TRY(flush(scores));
  return scores;
}

Status Scorer::flush(std::vector<SequenceScore>& scores) {
  STRATA_TRY_ASSIGN(const std::span<const float> logits, engine_.extend(tokens_, wanted_));
  const std::size_t vocab = targets_.empty() ? 0 : logits.size() / targets_.size();
  for (std::size_t k = 0; k < targets_.size(); ++k) {
    SequenceScore& score = scores[targets_[k].sequence];
    const double logprob = log_softmax_at(logits.subspan(k * vocab, vocab), targets_[k].token, score.greedy);
    if (!std::isfinite(logprob))
      return Status::error(Code::diverged,
                           str("sequence ", targets_[k].sequence, ": the log-probability of token ",
                               targets_[k].token, " is ", logprob));
    score.logprob += logprob;
  }
  tokens_.clear();
  wanted_.clear();
  targets_.clear();
  return Status::ok();
}

}  // namespace strata
