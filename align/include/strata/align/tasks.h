#pragma once

#include <strata/train/task_kind.h>

namespace strata {

/// The tasks of all values of train.objective, for RunRequest::tasks.
TaskKinds all_tasks() noexcept;

}  // namespace strata
