#pragma once

#include <strata/train/run_task.h>

namespace strata {

/// The tasks of all values of train.objective, for SessionRequest::tasks.
TaskKinds all_tasks() noexcept;

}  // namespace strata
