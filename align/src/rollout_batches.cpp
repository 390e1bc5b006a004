#include <strata/align/rollout_batches.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include <strata/runtime/str.h>

namespace strata {
namespace {

// The inputs that have these values.
constexpr std::array<const char*, kTokenValues> kInputs = {
    "old_log_probs", "reference", "advantages", "weights", "old_values", "returns", ""};

}  // namespace

Status RolloutBatches::set(std::vector<Rollout> rollouts) {
  const auto steps = static_cast<std::size_t>(shape_.steps);
  if (rollouts.empty() || rollouts.size() % steps != 0)
    return Status::error(Code::invalid,
                         str(rollouts.size(), " rollouts are not divided equally among ", steps, " steps"));
  rollouts_ = std::move(rollouts);
  first_token_.assign(1, 0);
  for (const Rollout& rollout : rollouts_) first_token_.push_back(first_token_.back() + rollout.n_chosen());
  for (std::vector<float>& values : values_) values.assign(first_token_.back(), 0.0f);
  placed_.assign(static_cast<std::size_t>(micro_batches_of_epoch()), {});
  const std::size_t share = rollouts_.size() / steps;
  for (std::size_t step = 0; step < steps; ++step)
    STRATA_TRY(place_share(step * share, share, static_cast<std::int64_t>(step)));
  return {};
}

// Each into the first row with room. The micro-batches that are used are the last ones of the step.
Status RolloutBatches::place_share(std::size_t first, std::size_t n, std::int64_t step) {
  std::vector<std::int64_t> used;  // positions of each row
  std::vector<std::vector<Placed>> placed;
  for (std::size_t i = first; i < first + n; ++i) {
    const auto length = static_cast<std::int64_t>(rollouts_[i].ids.size());
    if (length > shape_.seq)
      return Status::error(
          Code::invalid, str("a prompt and its answer have ", length, " tokens, but a row has ", shape_.seq));
    auto row =
        std::find_if(used.begin(), used.end(), [&](std::int64_t at) { return at + length <= shape_.seq; });
    if (row == used.end()) {
      if (used.size() == placed.size() * static_cast<std::size_t>(shape_.rows)) placed.emplace_back();
      used.push_back(0);
      row = std::prev(used.end());
    }
    const std::int64_t number = row - used.begin();
    placed[static_cast<std::size_t>(number / shape_.rows)].push_back(
        {static_cast<std::uint32_t>(i), number % shape_.rows * shape_.seq + *row});
    *row += length;
  }
  if (std::ssize(placed) > shape_.micro_batches)
    return Status::error(Code::invalid,
                         str(n, " rollouts need ", placed.size(), " micro-batches of ", shape_.rows, " x ",
                             shape_.seq, " tokens, but a step has ", shape_.micro_batches));
  const std::int64_t begin = (step + 1) * shape_.micro_batches - std::ssize(placed);
  std::move(placed.begin(), placed.end(), placed_.begin() + begin);
  return {};
}

std::int64_t RolloutBatches::n_positions() const noexcept {
  return shape_.rows * shape_.seq *
         std::count_if(placed_.begin(), placed_.end(), [](const auto& in) { return !in.empty(); });
}

std::int64_t RolloutBatches::n_inputs() const noexcept {
  std::int64_t n = 0;
  for (const Rollout& rollout : rollouts_) n += static_cast<std::int64_t>(rollout.ids.size());
  return n;
}

void RolloutBatches::take(std::int64_t index, std::span<const float> of_position,
                          std::vector<float>& of_token) const {
  for (const Placed& in : placed(index))
    for (std::size_t t = 0; t < rollouts_[in.rollout].n_chosen(); ++t)
      of_token[first_token_[in.rollout] + t] = of_position[static_cast<std::size_t>(position_of(in, t))];
}

void RolloutBatches::take_last(std::int64_t index, std::span<const float> of_position,
                               std::span<double> of_rollout) const {
  for (const Placed& in : placed(index)) {
    const std::int64_t last = in.at + std::ssize(rollouts_[in.rollout].ids) - 1;
    of_rollout[in.rollout] = static_cast<double>(of_position[static_cast<std::size_t>(last)]);
  }
}

std::int64_t RolloutBatches::count_other_bits(std::int64_t index,
                                              std::span<const float> log_probs_of_position) const {
  std::int64_t n = 0;
  for (const Placed& in : placed(index)) {
    const std::vector<float>& sampled = rollouts_[in.rollout].log_probs;
    for (std::size_t t = 0; t < sampled.size(); ++t)
      n += std::bit_cast<std::uint32_t>(sampled[t]) !=
           std::bit_cast<std::uint32_t>(log_probs_of_position[static_cast<std::size_t>(position_of(in, t))]);
  }
  return n;
}

Status RolloutBatches::fill(std::int64_t index, const BatchView& batch) {
  const std::span<std::int32_t> tokens = batch["tokens"], targets = batch["targets"],
                                doc_start = batch["doc_start"];
  std::fill(tokens.begin(), tokens.end(), 0);
  std::fill(targets.begin(), targets.end(), kIgnoreIndex);
  for (std::size_t t = 0; t < doc_start.size(); ++t)  // padding attends only to itself
    doc_start[t] = static_cast<std::int32_t>(t % static_cast<std::size_t>(shape_.seq));
  std::array<std::span<float>, kTokenValues> into;
  for (std::size_t v = 0; v < kTokenValues; ++v) {
    into[v] = batch.floats(kInputs[v]);
    std::fill(into[v].begin(), into[v].end(), 0.0f);
  }
  for (const Placed& in : placed(index)) {
    const Rollout& rollout = rollouts_[in.rollout];
    std::copy(rollout.ids.begin(), rollout.ids.end(), tokens.begin() + in.at);
    std::fill_n(doc_start.begin() + in.at, rollout.ids.size(), static_cast<std::int32_t>(in.at % shape_.seq));
    for (std::size_t t = 0; t < rollout.n_chosen(); ++t) {
      const auto at = static_cast<std::size_t>(position_of(in, t));
      if (!targets.empty()) targets[at] = rollout.chosen(t);
      for (std::size_t v = 0; v < kTokenValues; ++v)
        if (!into[v].empty()) into[v][at] = values_[v][first_token_[in.rollout] + t];
    }
  }
  return {};
}

TargetCount RolloutBatches::counted(std::int64_t index, std::int64_t n) const {
  TargetCount count;
  for (std::int64_t k = index; k < index + n; ++k)
    for (const Placed& in : placed(k))
      count.tokens += shape_.counts_tokens ? rollouts_[in.rollout].n_chosen() : 1;
  return count;
}

std::int64_t RolloutBatches::n_empty(std::int64_t index, std::int64_t n) {
  std::int64_t empty = 0;
  while (empty + 1 < n && placed(index + empty).empty()) ++empty;
  return empty;
}

}  // namespace strata
