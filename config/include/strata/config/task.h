#pragma once

#include <span>
#include <string_view>

#include <strata/config/objectives.h>
#include <strata/runtime/config/config.h>
#include <strata/runtime/status.h>

namespace strata {

/// The purpose of a run: a named set of values, like a preset, that says nothing about the model.
struct TrainTask {
  std::string_view name, doc;
  std::string_view objective = {};  ///< train.objective; empty: it stays as it is
  KeyValues values = {};
};
std::span<const TrainTask> train_tasks();
/// The values of a task; the origin is "--task NAME". Errors: `invalid`, with the names that there are.
Result<ConfigLayer> task_layer(std::string_view name);

}  // namespace strata
