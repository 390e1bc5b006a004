#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/session/manifest.h>
#include <strata/session/state_plan.h>

namespace strata::detail {

/// Returns the steps that have a folder, in ascending order.
struct StepFolder {
  std::int64_t step = 0;
  std::string path;
};
Result<std::vector<StepFolder>> step_folders(Io& io, const std::string& dir);

/// Checks that the files named in the manifest exist and have the right sizes.
Status check_files(Io& io, const std::string& folder, const Manifest& manifest);

/// Returns a payload's tensors as stored in a checkpoint of `plan`.
std::vector<TensorSpec> specs_in_layout_order(const StatePlan& plan, Payload payload);

}  // namespace strata::detail
