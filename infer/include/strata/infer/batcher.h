#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/infer/token_constraint.h>
#include <strata/model/sampling.h>

namespace strata {

enum class FinishReason : std::uint8_t {
  end_of_text,   ///< the model produced a stop token, or what was asked for is complete
  max_tokens,    ///< the requested number of tokens was reached
  context_full,  ///< the sequence fills its KV cache
  stopped,       ///< who receives the tokens wants no more
};
std::string_view to_string(FinishReason reason) noexcept;

/// A prompt as tokens, and how it is continued.
struct BatchSequence {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> stop_ids;  ///< any of these ends the text and is not part of it
  std::int32_t adapter = -1;           ///< number of its adapter; -1: none
  /// Leading tokens of the prompt that its place in the KV cache has already; fewer than the prompt has.
  std::int32_t cached = 0;
  /// Leading tokens of the prompt after which the engine keeps a snapshot of the place's states, if it keeps
  /// any: Engine::keep_snapshot(). A pass ends there. 0: no snapshot; at most as many as the prompt has.
  std::int32_t keep_at = 0;
  std::int64_t max_tokens = 128;  ///< 0: the prompt alone is computed
  SamplingOptions sampling;
  std::uint64_t seed = 0;      ///< selects the random numbers together with `index`, so others do not matter
  std::uint64_t index = 0;     ///< the index of the prompt in its request
  bool scores_prompt = false;  ///< the receiver wants the logits of the prompt, which then takes more passes
  /// The tokens that may come next, of which the stop_ids are none; null: any. The text ends once it is
  /// complete. It belongs to this sequence alone.
  std::shared_ptr<TokenConstraint> constraint = nullptr;
};

/// Receives what becomes of a sequence, on the thread that drives the batcher, which it must not call.
class SequenceReceiver {
 public:
  virtual ~SequenceReceiver() = default;
  /// Whether nobody waits for the text any more; asked before every pass.
  virtual bool is_cancelled() const noexcept { return false; }
  /// The logits that predict the prompt's token with this index, which is 1 or more; for `scores_prompt`.
  virtual void on_prompt_logits(std::size_t /*index*/, std::span<const float> /*logits*/) {}
  /// A token of the text was sampled from these logits. Returns whether the text goes on; an error ends it.
  virtual Result<bool> on_token(std::int32_t id, std::span<const float> logits) = 0;
  /// The text ends with one of its stop_ids, sampled from these logits.
  virtual void on_stop_token(std::int32_t /*id*/, std::span<const float> /*logits*/) {}
  /// Called once, after all others. Errors: `cancelled`; `diverged` with the token whose logits are not
  /// finite; those of on_token() and of the engine.
  virtual void on_end(const Result<FinishReason>& how) = 0;
};

/// The limits that the sequences of a batch share.
struct BatchLimits {
  std::int32_t context = 0;  ///< maximum tokens of a sequence, prompt included: those of the KV cache
  std::int32_t vocab = 0;    ///< only ids below it are sampled: a model may have rows without a token
  /// An adapter's, before the tokens of a sequence; `context` is without them.
  std::int32_t virtual_tokens = 0;
};

/// The work that a batcher has done so far.
struct BatchStats {
  std::uint64_t passes = 0, prompt_tokens = 0, tokens = 0;
  std::uint64_t decode_tokens = 0;  ///< the part of `tokens` from passes without tokens of prompts
  double prefill_seconds = 0;       ///< the time of passes that have tokens of prompts
  double decode_seconds = 0;        ///< the time of the other passes
};

/// Continues sequences that join and leave at any time (continuous batching: Yu et al. 2022, "Orca",
/// section 3). Each sequence has a place in the KV cache. A pass through the model takes one token of each
/// sequence that is being continued, and of the prompts as many as the prefill program still has rows for
/// (Agrawal et al. 2023, "Sarathi"): they cost hardly anything where parameters stream to the device. Used by
/// one thread.
class Batcher {
 public:
  Batcher(Engine& engine, const BatchLimits& limits);
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// Sequences that can be continued at the same time, and how many are.
  std::size_t n_places() const noexcept;
  std::size_t n_active() const noexcept { return order_.size(); }
  const BatchLimits& limits() const noexcept { return limits_; }
  const BatchStats& stats() const noexcept { return stats_; }

  /// Whether a sequence could be added if there is a free place. Errors: `invalid` for a prompt that is empty
  /// or longer than the context, with both numbers, and for sampling options out of range or a
  /// bias of what is no token.
  Status check(const BatchSequence& sequence) const;
  /// Gives a sequence the first free place. Errors: those of check(), and `invalid` if no place is free; then
  /// the receiver is not called.
  Status add(BatchSequence sequence, std::shared_ptr<SequenceReceiver> receiver);
  /// Ends those that were cancelled, and does one pass if any others are left. An error of the engine ends
  /// all sequences with it, and is returned.
  Status step();
  /// Ends all sequences with `why`.
  void end_all(const Status& why);

 private:
  struct Place;
  struct WantedRow;
  void add_next_tokens();
  void add_prompts();
  bool add_prompt_row(std::size_t place);
  Status keep_snapshots();
  void want_row(std::size_t place, std::size_t prompt_index);
  void deliver(const WantedRow& row, std::span<const float> logits);
  void sample(Place& place, std::span<const float> logits);
  Result<std::span<const float>> allowed(const BatchSequence& sequence, std::span<const float> logits);
  std::int64_t positions() const noexcept { return limits_.context + limits_.virtual_tokens; }
  void end(Place& place, const Result<FinishReason>& how);

  Engine& engine_;
  const BatchLimits limits_;
  Sampler sampler_;
  std::size_t rows_ = 0, logit_rows_ = 0;  // the sizes of the largest pass
  std::int32_t model_rows_ = 0;            // tokens of the model
  std::vector<Place> places_;
  std::vector<std::size_t> order_;  // active places, in the order in which they were taken
  BatchStats stats_;
  // The next pass: its tokens, the rows whose logits are wanted, and what they are for.
  std::vector<SequenceToken> tokens_;
  std::vector<std::int32_t> wanted_;
  std::vector<WantedRow> rows_wanted_;
  std::vector<float> masked_;  // the logits of a sequence with a constraint
};

}  // namespace strata
