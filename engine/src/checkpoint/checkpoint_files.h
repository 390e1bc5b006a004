// Names of a checkpoint's folder and of the files in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/checkpoint.h>
#include <strata/engine/engine.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors.h>

namespace strata::detail {

inline constexpr std::string_view kManifestName = "manifest.json";

/// "param.safetensors"
std::string file_of(Payload payload);
/// "step-00000012"
std::string folder_name(std::int64_t step);
/// Returns the step of such a name, with eight or more digits; nothing for any other name.
std::optional<std::int64_t> step_of(std::string_view name);
/// Returns a hidden name for a draft of that folder, unique to this process.
std::string draft_name(const std::string& folder_name);

/// Returns the steps that have a folder, in ascending order.
struct StepFolder {
  std::int64_t step = 0;
  std::string path;
};
Result<std::vector<StepFolder>> step_folders(Io& io, const std::string& dir);

/// Checks that the files named in the manifest exist and have the right sizes.
Status check_files(Io& io, const std::string& folder, const Manifest& manifest);

/// Returns a payload's tensors as stored in a checkpoint of `plan`.
std::vector<TensorSpec> specs_in_layout_order(const RunPlan& plan, Payload payload);

}  // namespace strata::detail
