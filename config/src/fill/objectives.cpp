#include <strata/config/objectives.h>

#include <algorithm>
#include <iterator>

#include <strata/config/train_config.h>

namespace strata {
namespace {

constexpr std::string_view kPairLosses[] = {"sigmoid", "ipo"}, kGroupLosses[] = {"grpo", "dr_grpo", "dapo"};

using KeyValue = std::pair<std::string_view, std::string_view>;
constexpr KeyValue kReward[] = {{"optim.lr", "1e-5"}, {"optim.weight_decay", "0"}};
constexpr KeyValue kTuning[] = {{"optim.lr", "1e-6"}, {"optim.weight_decay", "0"}};
constexpr KeyValue kPpo[] = {kTuning[0],
                             kTuning[1],
                             {"align.samples", "1"},
                             {"align.prompts", "64"},
                             {"align.mini_batches", "4"},
                             {"align.kl_coef", "0.05"}};

constexpr Objective kObjectives[] = {
    {.name = "lm"},
    {.name = "reward",
     .data = RunData::pairs,
     .scores = true,
     .doc = "a reward model of pairs of answers",
     .values = kReward},
    {.name = "dpo",
     .data = RunData::pairs,
     .has_reference = true,
     .losses = kPairLosses,
     .doc = "prefer the chosen answers of pairs (align.loss=ipo: IPO)",
     .values = kTuning},
    {.name = "ppo",
     .data = RunData::prompts,
     .has_critic = true,
     .doc = "raise the rewards of sampled answers, compared with a critic's values",
     .values = kPpo},
    {.name = "grpo",
     .data = RunData::prompts,
     .losses = kGroupLosses,
     .doc = "raise the rewards of sampled answers, compared in groups (align.loss=dr_grpo, dapo)",
     .values = kTuning},
};

}  // namespace

std::span<const Objective> all_objectives() noexcept { return kObjectives; }

const Objective& objective_named(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kObjectives, name, &Objective::name);
  return found != std::end(kObjectives) ? *found : kObjectives[0];
}

const Objective& objective_of(const TrainConfig& config) noexcept {
  return objective_named(config.train.objective);
}

}  // namespace strata
