#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
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

/// The tensors of a payload as stored in a checkpoint of `plan`, without those of `left_out`: in the order in
/// which the model declares them, which no layout and no number of ranks changes.
struct StoredTensors {
  std::vector<TensorSpec> specs;
  std::vector<std::int32_t> tensors;  ///< the tensor of the layout; indexed like specs
  /// The index into specs of each tensor of the layout; -1: it is not stored.
  std::vector<std::int32_t> index_of;
};
using LeftOut = std::map<std::string, std::string, std::less<>>;  // Manifest::frozen
StoredTensors stored_tensors(const StatePlan& plan, Payload payload, const LeftOut& left_out);

/// The digest of a file of a checkpoint: of that of its header, and those of its tensors in the order of the
/// file.
Digest file_digest(const Digest& header, std::span<const Digest> tensors);
/// A file of a checkpoint in `folder`, as a manifest lists it; all of it is read. Errors: those of
/// SafetensorsFile.
Result<CheckpointFile> describe_file(Io& io, const std::string& folder, const std::string& name);

}  // namespace strata::detail
