#include <strata/config/task.h>

#include <strata/runtime/str.h>

namespace strata {
namespace {

using TaskValue = std::pair<std::string_view, std::string_view>;

constexpr TaskValue kLora[] = {{"adapter.method", "lora"}, {"adapter.rank", "16"},
                               {"adapter.alpha", "32"},    {"adapter.targets", "all-linear"},
                               {"optim.lr", "2e-4"},       {"optim.weight_decay", "0"}};
// The settings of Dettmers et al. 2023 (arXiv 2305.14314) but for the rank, which is 64 there.
constexpr TaskValue kQlora[] = {
    kLora[0], kLora[1], kLora[2], kLora[3], kLora[4], kLora[5], {"train.base", "nf4-dq"}};

constexpr TaskValue kSft[] = {{"train.objective", "lm"}};
constexpr TaskValue kReward[] = {
    {"train.objective", "reward"}, {"optim.lr", "1e-5"}, {"optim.weight_decay", "0"}};
constexpr TaskValue kDpo[] = {{"train.objective", "dpo"}, {"optim.lr", "1e-6"}, {"optim.weight_decay", "0"}};

constexpr TaskValue kGrpo[] = {
    {"train.objective", "grpo"}, {"optim.lr", "1e-6"}, {"optim.weight_decay", "0"}};
constexpr TaskValue kPpo[] = {{"train.objective", "ppo"},  {"optim.lr", "1e-6"},
                              {"optim.weight_decay", "0"}, {"align.samples", "1"},
                              {"align.prompts", "64"},     {"align.mini_batches", "4"},
                              {"align.kl_coef", "0.05"}};

constexpr TrainTask kTasks[] = {
    {"full", "train all parameters", {}},
    {"lora", "low-rank adapters of all linear layers", kLora},
    {"qlora", "the same over a base in NF4 with double quantization", kQlora},
    {"sft", "learn answers to prompts, or texts", kSft},
    {"reward", "a reward model of pairs of answers", kReward},
    {"dpo", "prefer the chosen answers of pairs (align.loss=ipo: IPO)", kDpo},
    {"grpo", "raise the rewards of sampled answers, compared in groups (align.loss=dr_grpo, dapo)", kGrpo},
    {"ppo", "raise the rewards of sampled answers, compared with a critic's values", kPpo},
};

}  // namespace

std::span<const TrainTask> train_tasks() noexcept { return kTasks; }

Result<ConfigLayer> task_layer(std::string_view name) {
  std::string names;
  for (const TrainTask& task : kTasks) {
    if (task.name == name) {
      ConfigLayer layer{str("--task ", name), {}};
      for (const auto& [key, text] : task.values) layer.values.emplace_back(key, text);
      return layer;
    }
    names += str(names.empty() ? "" : ", ", task.name);
  }
  return Status::error(Code::invalid, str("--task ", name, " is no task; the tasks are ", names));
}

}  // namespace strata
