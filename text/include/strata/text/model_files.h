#pragma once

#include <cstdint>
#include <string>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

// The files that describe a tokenizer: in a Hugging Face folder, or in a GGUF file, whose metadata say what
// those files would. "m.gguf/tokenizer.json" is what m.gguf has in its place; tokenizer_config.json (with the
// chat template) and generation_config.json likewise.

namespace strata {

/// Whether `path` is a file whose name ends in ".gguf".
bool is_gguf_file(Io& io, const std::string& path);
/// The GGUF file that "m.gguf/tokenizer.json" is in; empty if `path` is not in one.
std::string gguf_of(Io& io, const std::string& path);

/// Whether there is such a file, on disk or in a GGUF file.
bool tokenizer_file_exists(Io& io, const std::string& path);
/// Its text. Errors: those of read_text(); of a GGUF file `not_found` for another name than those above,
/// `corrupt` with the offset or the key, and `unsupported` with the key.
Result<std::string> read_tokenizer_file(Io& io, const std::string& path, std::uint64_t limit_bytes);

/// Resolves the folder's file `name`: the file itself, or the target of a symlink within the folder or, in a
/// snapshot of the Hugging Face hub's cache (REPOSITORY/snapshots/REVISION), within REPOSITORY/blobs. A
/// symlink must not lead anywhere else. Errors: `invalid` for a symlink to another place, with the place;
/// `not_found` for a dangling one.
Result<std::string> file_in_hf_folder(const std::string& folder, const std::string& name);
/// The text of the folder's file `name`, one of those above. Errors: those of both.
Result<std::string> read_tokenizer_file_in(Io& io, const std::string& folder, const std::string& name,
                                           std::uint64_t limit_bytes);

}  // namespace strata
