#pragma once

#include <optional>
#include <string>

#include <strata/session/checkpoint.h>

namespace strata::detail {

/// Writes `task` into a checkpoint's folder and describes the file for its manifest; nothing if it is empty.
Result<std::optional<CheckpointFile>> write_task_state(Io& io, const std::string& folder,
                                                       const TaskState& task);

}  // namespace strata::detail
