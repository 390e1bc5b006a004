#include <strata/align/tasks.h>

#include <array>

#include "pair_task.h"
#include "policy_task.h"

namespace strata {

TaskKinds all_tasks() noexcept {
  static const std::array<TaskKind, 5> kinds = {{text_tasks().front(),
                                                 {"reward", true, PairTask::create},
                                                 {"dpo", true, PairTask::create},
                                                 {"ppo", false, PolicyTask::create},
                                                 {"grpo", false, PolicyTask::create}}};
  return kinds;
}

}  // namespace strata
