// How a checkpoint is laid out in its folder, and the folders in theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/checkpoint.h>
#include <strata/engine/engine.h>
#include <strata/runtime/io.h>
#include <strata/runtime/safetensors.h>

namespace strata::detail {

inline constexpr std::string_view kManifestName = "manifest.json";

/// "param.safetensors"
std::string file_of(Payload payload);
/// "step-00000012"
std::string folder_name(std::int64_t step);
/// The step of such a name, with eight digits or more; nothing for any other.
std::optional<std::int64_t> step_of(std::string_view name);
/// A hidden name of this process beside the folder's.
std::string draft_name(const std::string& folder_name);

/// Steps that have a folder, ascending.
struct StepFolder {
  std::int64_t step = 0;
  std::string path;
};
Result<std::vector<StepFolder>> step_folders(Io& io, const std::string& dir);

/// Whether the files that a manifest names are there in their sizes.
Status check_files(Io& io, const std::string& folder, const Manifest& manifest);

/// The tensors of a payload as a checkpoint of `plan` holds them.
std::vector<TensorSpec> specs_in_layout_order(const RunPlan& plan, Payload payload);

}  // namespace strata::detail
