#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata::detail {

/// Elements of a tensor that are read or written in f32 at a time.
inline constexpr std::int64_t kElemsAtOnce = (1 << 20) / 4;

/// The text of the folder's file `name`. Errors: those of file_in_hf_folder() and
/// read_model_file().
Result<std::string> read_in_hf_folder(Io& io, const std::string& folder, const std::string& name,
                                      std::uint64_t limit_bytes);

/// Writes a file or folder as a whole: `write` fills a draft next to it, which is then renamed and synced, or
/// removed after an error. `path` must not exist. Errors: `invalid`, those of `write`.
Status write_whole(Io& io, const std::string& path,
                   const std::function<Status(const std::string& draft)>& write);

/// "[2, 16]", for messages.
std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace strata::detail
