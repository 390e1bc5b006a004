#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include <strata/align/rollout.h>
#include <strata/batches/micro_batches.h>

namespace strata {

/// The values of each token that the policy chose. Programs read them, but for the entropy.
enum class TokenValue : std::uint8_t {
  old_log_prob,
  reference,
  advantage,
  weight,
  old_value,
  value_target,
  entropy
};
inline constexpr TokenValue kAllTokenValues[] = {
    TokenValue::old_log_prob, TokenValue::reference,    TokenValue::advantage, TokenValue::weight,
    TokenValue::old_value,    TokenValue::value_target, TokenValue::entropy};
inline constexpr std::size_t kTokenValues = std::size(kAllTokenValues);

/// How the rollouts of an iteration become micro-batches: `steps` equal shares of them, each in at most
/// `micro_batches` micro-batches of `rows` x `seq` tokens.
struct RolloutShape {
  std::int64_t steps = 1, micro_batches = 1, rows = 1, seq = 0;
  bool counts_tokens = false;  ///< whether a loss is divided by its tokens, or else by its rollouts
};

/// Packs rollouts, each whole in a row, into micro-batches, and provides them over and over: those of an
/// epoch are those of the first one. What a step does not need of its micro-batches is in front, and empty.
class RolloutBatches final : public MicroBatches {
 public:
  explicit RolloutBatches(const RolloutShape& shape) : shape_(shape) {}

  /// The rollouts of an iteration, a multiple of the steps; all token values become 0. Errors: `invalid` if
  /// one does not fit into a row, or a share into its micro-batches, with both numbers.
  Status set(std::vector<Rollout> rollouts);
  const RolloutShape& shape() const noexcept { return shape_; }
  const std::vector<Rollout>& rollouts() const noexcept { return rollouts_; }
  std::vector<Rollout>& rollouts() noexcept { return rollouts_; }
  std::int64_t micro_batches_of_epoch() const noexcept { return shape_.steps * shape_.micro_batches; }

  /// A value of each token that was chosen, one rollout after the other.
  std::vector<float>& values(TokenValue what) noexcept { return values_[static_cast<std::size_t>(what)]; }
  const std::vector<float>& values(TokenValue what) const noexcept {
    return values_[static_cast<std::size_t>(what)];
  }
  /// The values of a rollout's tokens.
  std::span<float> values_of(TokenValue what, std::size_t rollout) noexcept {
    return std::span(values(what)).subspan(first_token_[rollout], rollouts_[rollout].n_chosen());
  }
  std::size_t n_tokens() const noexcept { return first_token_.empty() ? 0 : first_token_.back(); }
  /// The positions of all micro-batches that are computed, and those that hold a token.
  std::int64_t n_positions() const noexcept;
  std::int64_t n_inputs() const noexcept;

  /// Takes what a program says of each position of micro-batch `index` for the tokens that were chosen there.
  void take(std::int64_t index, std::span<const float> of_position, std::vector<float>& of_token) const;
  /// The same of the last position of each rollout.
  void take_last(std::int64_t index, std::span<const float> of_position, std::span<double> of_rollout) const;

  /// How many tokens of micro-batch `index` have another log-probability there, bit by bit, than the sampler
  /// gave them. Tokens of which it has said nothing are not counted.
  std::int64_t count_other_bits(std::int64_t index, std::span<const float> log_probs_of_position) const;

  Status fill(std::int64_t index, const BatchView& batch) override;
  std::int64_t n_batches() const override { return std::numeric_limits<std::int64_t>::max(); }
  TargetCount counted(std::int64_t index, std::int64_t n) const override;
  std::int64_t n_empty(std::int64_t index, std::int64_t n) override;

 private:
  struct Placed {
    std::uint32_t rollout = 0;
    std::int64_t at = 0;  // where its first position is in the micro-batch
  };
  Status place_share(std::size_t first, std::size_t n, std::int64_t step);
  const std::vector<Placed>& placed(std::int64_t index) const {
    return placed_[static_cast<std::size_t>(index % micro_batches_of_epoch())];
  }
  std::int64_t position_of(const Placed& placed, std::size_t token) const {
    return placed.at + rollouts_[placed.rollout].n_prompt - 1 + static_cast<std::int64_t>(token);
  }

  const RolloutShape shape_;
  std::vector<Rollout> rollouts_;
  std::vector<std::size_t> first_token_;  // the first token of each rollout, and at the end the number of all
  std::vector<std::vector<Placed>> placed_;  // indexed by micro-batch of an epoch
  std::array<std::vector<float>, kTokenValues> values_;
};

}  // namespace strata
