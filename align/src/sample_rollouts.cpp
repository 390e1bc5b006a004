#include <strata/align/sample_rollouts.h>

#include <memory>

#include <strata/kernels/align/linear_log_probs.h>
#include <strata/text/permutation.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

/// What the sampler says of a token, in `scratch`. Training has the logits of all of the model's rows, also
/// of those that are never sampled.
struct TokenScorer {
  float temperature = 1;
  std::vector<float> scratch;
  void add(std::int32_t id, std::span<const float> logits, Rollout& to) {
    scratch.assign(logits.begin(), logits.end());
    const kernels::TokenLogProb token = kernels::token_log_prob(scratch, id, temperature);
    to.log_probs.push_back(token.log_prob);
    to.entropies.push_back(token.entropy);
  }
};

/// Collects the tokens of one answer.
class Answer final : public SequenceReceiver {
 public:
  Answer(Rollout& into, TokenScorer& scorer) : into_(into), scorer_(scorer) {}
  Result<bool> on_token(std::int32_t id, std::span<const float> logits) override {
    into_.ids.push_back(id);
    scorer_.add(id, logits, into_);
    return true;
  }
  void on_stop_token(std::int32_t id, std::span<const float> logits) override {
    into_.stop = id;
    scorer_.add(id, logits, into_);
  }
  void on_end(const Result<FinishReason>& how) override { status = how.status(); }

  Status status;

 private:
  Rollout& into_;
  TokenScorer& scorer_;
};

std::uint32_t prompt_of(std::uint64_t number, std::size_t n, std::uint64_t seed) {
  return static_cast<std::uint32_t>(permuted(number % n, n, seed, number / n));
}

}  // namespace

Result<std::vector<Rollout>> sample_rollouts(Engine& engine, const PromptSet& prompts,
                                             const RolloutOptions& options, std::int64_t iteration,
                                             const std::function<bool()>& stops) {
  const auto n = static_cast<std::size_t>(options.prompts * options.samples);
  const std::uint64_t first = static_cast<std::uint64_t>(iteration) * n;
  std::vector<Rollout> rollouts(n);
  std::vector<std::shared_ptr<Answer>> answers;
  TokenScorer scorer{static_cast<float>(options.temperature), {}};
  Batcher batcher(engine, options.limits);
  const auto begin = [&](std::size_t i) {
    const std::uint64_t number = (first + i) / static_cast<std::uint64_t>(options.samples);
    Rollout& rollout = rollouts[i];
    rollout.prompt = prompt_of(number, prompts.size(), options.seed);
    const PromptTokens& prompt = prompts.tokens(rollout.prompt);
    rollout.ids = prompt.ids;
    rollout.n_prompt = static_cast<std::uint32_t>(prompt.ids.size());
    BatchSequence sequence{.prompt = prompt.ids,
                           .stop_ids = prompt.stop_ids,
                           .max_tokens = options.max_tokens,
                           .sampling = {.temperature = options.temperature},
                           .seed = options.seed,
                           .index = first + i};
    sequence.stop_ids.insert(sequence.stop_ids.end(), options.ends.begin(), options.ends.end());
    answers.push_back(std::make_shared<Answer>(rollout, scorer));
    return batcher.add(std::move(sequence), answers.back()).annotate(str("prompt ", rollout.prompt + 1));
  };
  while (answers.size() < n || batcher.n_active() > 0) {
    while (answers.size() < n && batcher.n_active() < batcher.n_places()) STRATA_TRY(begin(answers.size()));
    if (stops()) return Status::error(Code::cancelled, "sampling answers was stopped");
    STRATA_TRY(batcher.step());
  }
  for (std::size_t i = 0; i < n; ++i)
    STRATA_TRY(answers[i]->status.annotate(str("an answer to prompt ", rollouts[i].prompt + 1)));
  return rollouts;
}

}  // namespace strata
