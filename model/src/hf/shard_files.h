#pragma once

#include <memory>
#include <string>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Opens the files of a folder's tensors: model.safetensors, or the shards that
/// model.safetensors.index.json lists. Errors: those of reading them; `invalid` for a shard name that is no
/// plain file name; those of explain_hf_folder() and of file_in_hf_folder().
Result<std::vector<std::unique_ptr<SafetensorsFile>>> open_shards(Io& io, const std::string& folder);

}  // namespace strata::detail
