#include <strata/config/task.h>

#include <vector>

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

// The tasks of the other objectives are in their rows.
constexpr TrainTask kTasks[] = {
    {.name = "full", .doc = "train all parameters"},
    {.name = "lora", .doc = "low-rank adapters of all linear layers", .values = kLora},
    {.name = "qlora", .doc = "the same over a base in NF4 with double quantization", .values = kQlora},
    {.name = "sft", .doc = "learn answers to prompts, or texts", .objective = "lm"},
};

std::vector<TrainTask> make_tasks() {
  std::vector<TrainTask> tasks(std::begin(kTasks), std::end(kTasks));
  for (const Objective& each : all_objectives())
    if (!each.doc.empty()) tasks.push_back({each.name, each.doc, each.name, each.values});
  return tasks;
}

}  // namespace

std::span<const TrainTask> train_tasks() {
  static const std::vector<TrainTask> tasks = make_tasks();
  return tasks;
}

Result<ConfigLayer> task_layer(std::string_view name) {
  std::string names;
  for (const TrainTask& task : train_tasks()) {
    if (task.name == name) {
      ConfigLayer layer{str("--task ", name), {}};
      if (!task.objective.empty()) layer.values.emplace_back("train.objective", task.objective);
      for (const auto& [key, text] : task.values) layer.values.emplace_back(key, text);
      return layer;
    }
    names += str(names.empty() ? "" : ", ", task.name);
  }
  return Status::error(Code::invalid, str("--task ", name, " is no task; the tasks are ", names));
}

}  // namespace strata
