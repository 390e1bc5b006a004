// Names of a checkpoint's folder and of the files in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <strata/chunk/types.h>

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
/// A name that save_checkpoint uses while it works: ".unfinished-step-00000012-4711", with ".replaced"
/// appended for a checkpoint moved aside.
struct Draft {
  std::string folder;  ///< name of the folder that it becomes
  bool replaced = false;
};
/// Returns nothing for any other name.
std::optional<Draft> draft_of(std::string_view name);

}  // namespace strata::detail
